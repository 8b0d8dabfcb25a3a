"""The ops of a step that compute with sparse tensors. A tape leaves them out: it holds plain views of memory only.

What such an op writes or returns is not on the tape either, nor is what later ops compute from it. The rest of the step
is: its forward, its loss, and the gradients of dense parameters.

    embedding (sparse)    loss    backward                 optimizer
    on the tape           yes     all but the sparse       the update of every parameter but the table
                                  gradient of the table
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...torch_private.dispatching import StorageMark, storage_address
from ..tape import leaves
from .followed_calls import OpCall

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class SparseOps:
    """The ops that one step's tape leaves out; `count` is their number."""

    def __init__(self) -> None:
        self.count = 0
        self._marks: dict[int, StorageMark] = {}  # a mark keeps its storage's address in use

    def concerns(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Check whether one of these tensors is sparse, or was computed from a sparse one."""
        return any(tensor.layout in SPARSE or self._is_marked(tensor) for tensor in tensors)

    def leave_out(self, call: OpCall, outputs: Any) -> None:
        """Mark what a call has written and returned."""
        self.count += 1
        results = (value for value in leaves(outputs) if isinstance(value, torch.Tensor)) if outputs is not None else ()
        for tensor in (*results, *call.written):
            if tensor.layout == torch.strided:
                self._marks[storage_address(tensor)] = StorageMark(tensor)

    def _is_marked(self, tensor: torch.Tensor) -> bool:
        return bool(self._marks) and tensor.layout == torch.strided and storage_address(tensor) in self._marks

"""Eager mode with the one thing that lazy mode does otherwise on every machine: it copies what is transposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class TransposesCopied(TorchDispatchMode):
    """Gives each op the bits of lazy mode. There a transposed weight is a copy that lies row by row, eagerly it is a view.

    The kernels are the same, but for another layout a library may take another path: MKL gives a product of 8 x 12
    and 12 x 10 other last bits on AVX2, and the same bits on other machines.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        is_transpose = func in (torch.ops.aten.t.default, torch.ops.aten.transpose.int)
        return result.contiguous() if is_transpose else result

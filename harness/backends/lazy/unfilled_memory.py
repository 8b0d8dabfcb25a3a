"""Memory that a kernel of the lazy core allocates but does not fill, and graphs whose results depend on its content.

The core keeps the tensor of an `empty` as data, and represents each write to it by a new node. If such a node is lost,
a graph takes the data as it was allocated. That alone is not a fault, since the graph may overwrite all of it. The
graph is therefore executed two more times, with different values in place of the data. A dependence is reported only if
the results then differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...tape.replaying.replay import is_same
from ...tape.tape import SCRATCH
from ...torch_private.dispatching import storage_address
from .pending_graph import LazyCall

VALUES = (0, 1)
"""The values that replace the content of unfilled memory."""


class UnfilledMemory:
    """The unfilled memory of one step. `read` has the calls that allocated memory on which a result depends."""

    def __init__(self) -> None:
        self.read: list[LazyCall] = []
        self._makers: dict[int, LazyCall] = {}
        self._kept: list[torch.Tensor] = []  # so that no other storage gets these addresses

    @staticmethod
    def is_made_by(call: LazyCall) -> bool:
        return call.kernel.name.removeprefix("aten::").partition(".")[0] in SCRATCH

    def made(self, call: LazyCall, real: torch.Tensor) -> None:
        self._makers[storage_address(real)] = call
        self._kept.append(real)

    def look(
        self, real: Sequence[torch.Tensor], taped: Sequence[torch.Tensor], execute: Callable[[list[torch.Tensor]], Any]
    ) -> None:
        """Add to `read` the calls that allocated unfilled memory on which an executed graph's results depend.

        `real` are the graph's inputs in the core, `taped` the same inputs on the tape. `execute` executes the graph
        again with given inputs.
        """
        for position, value in enumerate(real):
            maker = self._makers.get(storage_address(value))
            if maker is None or maker in self.read:
                continue
            results = []
            for filler in VALUES:
                inputs = [tensor.clone() for tensor in taped]
                inputs[position] = torch.full_like(taped[position], filler)
                results.append(execute(inputs))
            if not all(is_same(x, y) for x, y in zip(*results, strict=True) if isinstance(x, torch.Tensor)):
                self.read.append(maker)

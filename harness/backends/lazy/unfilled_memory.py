"""Memory that a kernel of the lazy core has made without values, and whether a graph depends on what lies there.

The core keeps what `empty` makes as data of its own, and notes what is written to it as further nodes. Where that note
is lost, a graph is given the data as it was made. That alone is no fault, as a graph may overwrite all of it: so the
graph is executed with other values in its place, and only where it gives something else then is anything said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...tape.replay import is_same
from ...tape.tape import SCRATCH
from ...torch_private.dispatching import storage_address
from .pending_graph import KernelCalled

VALUES = (0, 1)
"""What is put in the place of what lies there."""


class UnfilledMemory:
    """The memories of one step; `read` are the calls that have made such of which a result depends."""

    def __init__(self) -> None:
        self.read: list[KernelCalled] = []
        self._makers: dict[int, KernelCalled] = {}
        self._kept: list[torch.Tensor] = []  # so that no address of theirs is given to another storage

    @staticmethod
    def is_made_by(call: KernelCalled) -> bool:
        return call.kernel.name.removeprefix("aten::").partition(".")[0] in SCRATCH

    def made(self, call: KernelCalled, real: torch.Tensor) -> None:
        self._makers[storage_address(real)] = call
        self._kept.append(real)

    def look(
        self, given: Sequence[torch.Tensor], taken: Sequence[torch.Tensor], execute: Callable[[list[torch.Tensor]], Any]
    ) -> None:
        """A graph was executed that was `given` these values of the core's. `execute` does so again with others than
        those of the tape that it has `taken`."""
        for place, value in enumerate(given):
            maker = self._makers.get(storage_address(value))
            if maker is None or maker in self.read:
                continue
            results = []
            for other in VALUES:
                inputs = [one.clone() for one in taken]
                inputs[place] = torch.full_like(taken[place], other)
                results.append(execute(inputs))
            if not all(is_same(one, two) for one, two in zip(*results, strict=True) if isinstance(one, torch.Tensor)):
                self.read.append(maker)

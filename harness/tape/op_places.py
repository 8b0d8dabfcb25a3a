"""Where in the step an op is: its phase, its module, and what ties a backward op to its forward op."""

from __future__ import annotations

from dataclasses import dataclass

from numdrift.kernels.swaps.sites import MARK, ModulePaths

from .. import torch_private
from .tape import Phase


@dataclass(frozen=True, slots=True)
class Place:
    """Of one op; the fields are those of a call."""

    phase: Phase
    module: str | None
    sequence: int | None


class Places:
    """Follows one step. With `modules` hooks are set in every module's call until `close`, which a compiler would
    trace: without them paths are unknown."""

    def __init__(self, *, modules: bool) -> None:
        self._phase: Phase = "data"
        self._modules = ModulePaths() if modules else None
        self._of_sequence: dict[int, str | None] = {}
        self._next = torch_private.next_sequence_number()

    def here(self, *, grad: bool, differentiable: bool) -> Place:
        """The place of the op that runs in grad mode `grad`; `differentiable` says that one of its arguments requires
        a gradient."""
        node = torch_private.current_autograd_node()
        before, self._next = self._next, torch_private.next_sequence_number()
        current = None if self._modules is None else self._modules.current
        if node is not None:
            self._phase = "optimizer"
            number = torch_private.sequence_number(node)
            path = current if current is not None else node.metadata.get(MARK)
            if path is None and number is not None:
                path = self._of_sequence.get(number)
            return Place("backward", path, number)
        # a loss that is only read, detached or printed after the backward makes no node
        if current is not None or (differentiable and grad and self._next > before):
            self._phase = "forward"
        if self._phase != "forward" or not grad:
            return Place(self._phase, current, None)
        number = torch_private.next_sequence_number() - 1
        self._of_sequence[number] = current
        return Place("forward", current, number)

    def compiled(self) -> Phase:
        """The phase of a compiled graph that is about to be executed."""
        self._next = torch_private.next_sequence_number()
        backward = torch_private.current_autograd_node() is not None
        self._phase = "optimizer" if backward else "forward"
        return "backward" if backward else "forward"

    def close(self) -> None:
        if self._modules is not None:
            self._modules.close()
            self._modules = None

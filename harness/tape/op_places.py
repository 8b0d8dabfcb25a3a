"""Where in the step an op is: its phase, its module, its forward op, and outside of modules the parameters
that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from numdrift.kernels.swaps.sites import MARK, ModulePaths

from ..torch_private.dispatching import (
    current_autograd_node,
    next_sequence_number,
    registered_operation,
    sequence_number,
)
from ..torch_private.operators import written_values
from .tape import Call, Phase, View, Watched, views_in


@dataclass(frozen=True, slots=True)
class OpPlace:
    """Of one op; the fields are those of a call."""

    phase: Phase
    module: str | None
    sequence: int | None


class StepPlaces:
    """Follows one step. With `modules` hooks are set in every module's call until `close`, which a compiler
    would trace: without them paths are unknown."""

    def __init__(self, *, modules: bool) -> None:
        self._phase: Phase = "data"
        self._modules = ModulePaths() if modules else None
        self._of_sequence: dict[int, str | None] = {}
        self._next = next_sequence_number()

    def here(self, *, grad: bool, differentiable: bool) -> OpPlace:
        """The place of the op that runs in grad mode `grad`; `differentiable` says that one of its arguments
        requires a gradient."""
        node = current_autograd_node()
        before, self._next = self._next, next_sequence_number()
        current = None if self._modules is None else self._modules.current
        if node is not None:
            self._phase = "optimizer"
            number = sequence_number(node)
            path = current if current is not None else node.metadata.get(MARK)
            if path is None and number is not None:
                path = self._of_sequence.get(number)
            return OpPlace("backward", path, number)
        # a loss that is only read, detached or printed after the backward makes no node
        if current is not None or (differentiable and grad and self._next > before):
            self._phase = "forward"
        if self._phase != "forward" or not grad:
            return OpPlace(self._phase, current, None)
        number = next_sequence_number() - 1
        self._of_sequence[number] = current
        return OpPlace("forward", current, number)

    def compiled(self) -> Phase:
        """The phase of a compiled graph that is about to be executed."""
        self._next = next_sequence_number()
        backward = current_autograd_node() is not None
        self._phase = "optimizer" if backward else "forward"
        return "backward" if backward else "forward"

    def close(self) -> None:
        if self._modules is not None:
            self._modules.close()
            self._modules = None


# Whose calls those outside of any module are: the parameters that an optimizer's op is about.

KINDS = ("parameter", "gradient", "state")


def owners_of(calls: Sequence[Call], watched: Sequence[Watched]) -> list[tuple[str, ...]]:
    """The parameters that each call touches, empty for those within a module and those that touch none.

    A call is about the parameters that it writes (their values, gradients or optimizer state), else about
    those that it reads, directly or through what earlier calls made of them.
    """
    # The parameter behind each slot, by the names `parameter NAME`, `gradient N NAME` and `state NAME.KEY`
    owner: dict[int, tuple[str, ...]] = {}
    for one in watched:
        kind, _, rest = one.name.partition(" ")
        if kind not in KINDS:
            continue
        if kind == "gradient":
            rest = rest.partition(" ")[2]
        elif kind == "state":
            rest = rest.rpartition(".")[0]
        owner.setdefault(one.view.slot, (rest,))
    found: list[tuple[str, ...]] = []
    for call in calls:
        if call.module is not None or call.phase == "forward":
            found.append(())
            continue
        operation = registered_operation(call.op)
        writes = written_values(operation, call.arguments, call.keywords)
        mine: tuple[str, ...] = ()
        for values in (writes, views_in(call)):
            slots = [value.slot for value in values if isinstance(value, View)]
            mine = mine or tuple(dict.fromkeys(name for slot in slots for name in owner.get(slot, ())))
        found.append(mine)
        if mine:  # what is made of theirs is about them, too: `gradient / norm` is, and what takes that
            for output, fresh in zip(call.outputs, call.fresh, strict=True):
                if fresh:
                    owner.setdefault(output.slot, mine)
    return found


def owned_by_one(calls: Sequence[Call], owners: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The owners of calls, where what one makes outside of any module is read for one of them alone: nothing that is
    written in place tells of a functional update whose state it is."""
    found = list(owners)
    readers: dict[int, set[tuple[str, ...]]] = {}
    for number in range(len(calls) - 1, -1, -1):
        call = calls[number]
        of = {one for view in call.outputs if isinstance(view, View) for one in readers.get(view.slot, ())}
        if not found[number] and call.phase == "optimizer" and call.module is None and len(of) == 1:
            (found[number],) = of
        for view in views_in(call):
            readers.setdefault(view.slot, set()).add(found[number])
    return found

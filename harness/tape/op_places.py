"""The place of an op in its step: its phase, its module, its forward op and, outside of modules, its parameters."""

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
from .module_frames import ModuleFrames
from .tape import Call, Phase, View, Watched, views_in


@dataclass(frozen=True, slots=True)
class OpPlace:
    """The place of one op. The fields have the same meanings as those of a `Call`."""

    phase: Phase
    module: str | None
    sequence: int | None


class StepPlaces:
    """Follows one step, and determines the place of each op.

    With `modules`, it hooks the calls of all modules until `close`. A compiler would trace the hooks, so without
    `modules` the modules that are running are read from Python's frames.
    """

    def __init__(self, *, modules: bool) -> None:
        self._phase: Phase = "data"
        self._modules = ModulePaths() if modules else None
        self.frames = ModuleFrames()
        self._of_sequence: dict[int, str | None] = {}
        self._next = next_sequence_number()

    def here(self, *, grad: bool, differentiable: bool) -> OpPlace:
        """Return the place of the op that is being called.

        `grad` says whether the grad mode is on, `differentiable` whether an argument of the op requires a gradient.
        """
        node = current_autograd_node()
        before, self._next = self._next, next_sequence_number()
        current = (self.frames if self._modules is None else self._modules).current
        if node is not None:
            self._phase = "optimizer"
            number = sequence_number(node)
            path = current if current is not None else node.metadata.get(MARK)
            if path is None and number is not None:
                path = self._of_sequence.get(number)
            return OpPlace("backward", path, number)
        # Outside of modules, only an op that creates an autograd node begins a forward. Reading, detaching or printing
        # the loss after the backward creates none.
        if current is not None or (differentiable and grad and self._next > before):
            self._phase = "forward"
        if self._phase != "forward" or not grad:
            return OpPlace(self._phase, current, None)
        number = next_sequence_number() - 1
        self._of_sequence.setdefault(number, current)  # later ops without an autograd node see the same number
        return OpPlace("forward", current, number)

    def compiled(self) -> Phase:
        """Return the phase of a compiled graph that is about to be executed."""
        self._next = next_sequence_number()
        backward = current_autograd_node() is not None
        self._phase = "optimizer" if backward else "forward"
        return "backward" if backward else "forward"

    def close(self) -> None:
        if self._modules is not None:
            self._modules.close()
            self._modules = None


# The owners of a call outside of modules: the parameters that, for example, an optimizer's op updates.

KINDS = ("parameter", "gradient", "state")


def owners_of(calls: Sequence[Call], watched: Sequence[Watched]) -> list[tuple[str, ...]]:
    """Return the parameters that each call concerns; none for a call within a module or in the forward.

    A call concerns the parameters to which it writes (to their values, gradients or optimizer state). If it writes to
    none, it concerns the parameters that it reads, directly or through the results of earlier calls.
    """
    # The parameter of each slot, from the names `parameter NAME`, `gradient N NAME` and `state NAME.KEY`.
    owner: dict[int, tuple[str, ...]] = {}
    for watched_value in watched:
        kind, _, rest = watched_value.name.partition(" ")
        if kind not in KINDS:
            continue
        if kind == "gradient":
            rest = rest.partition(" ")[2]
        elif kind == "state":
            rest = rest.rpartition(".")[0]
        owner.setdefault(watched_value.view.slot, (rest,))
    owners_by_call: list[tuple[str, ...]] = []
    for call in calls:
        if call.module is not None or call.phase == "forward":
            owners_by_call.append(())
            continue
        operation = registered_operation(call.op)
        writes = written_values(operation, call.arguments, call.keywords)
        call_owners: tuple[str, ...] = ()
        for values in (writes, views_in(call)):
            slots = [value.slot for value in values if isinstance(value, View)]
            call_owners = call_owners or tuple(dict.fromkeys(name for slot in slots for name in owner.get(slot, ())))
        owners_by_call.append(call_owners)
        if call_owners:  # a result has the owners of the value that it was computed from, as in `gradient / norm`
            for output, fresh in zip(call.outputs, call.fresh, strict=True):
                if fresh:
                    owner.setdefault(output.slot, call_owners)
    return owners_by_call


def with_owners_of_readers(calls: Sequence[Call], owners: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the owners of calls. An optimizer's call without owners gets those of the calls that read its outputs.

    It gets them only if all of these calls have the same owners. This is needed for a functional update, which writes
    nothing in place: only the calls that read its outputs show which parameter it belongs to.
    """
    owned = list(owners)
    readers: dict[int, set[tuple[str, ...]]] = {}
    for number in range(len(calls) - 1, -1, -1):
        call = calls[number]
        reader_owners = {
            names for view in call.outputs if isinstance(view, View) for names in readers.get(view.slot, ())
        }
        if not owned[number] and call.phase == "optimizer" and call.module is None and len(reader_owners) == 1:
            (owned[number],) = reader_owners
        for view in views_in(call):
            readers.setdefault(view.slot, set()).add(owned[number])
    return owned

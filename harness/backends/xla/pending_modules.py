"""The graph that mode `xla` is about to execute, for a snapshot: the HLO, its inputs and its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...records.run.execution_facts import INPUTS
from ...snapshots.camera import Wish
from ...snapshots.segments import made_or_written
from ...snapshots.snapshot_record import (
    AFTERWARDS,
    CHANGING,
    Circumstances,
    Hlo,
    Port,
    Reason,
    Snapshot,
    watched_output,
)
from ...tape.storages import bytes_of_storage
from ...tape.tape import Call, Draw, Tape, in_words
from ...torch_private.deferred.xla import read_xla, xla_hlo
from ...torch_private.deferred.xla_tensors import SEED, XlaData, execute_hlo, xla_data, xla_hlo_proto
from .pending_calls import PendingCalls, Stretch, laid_out


@dataclass(frozen=True, slots=True, eq=False)
class PendingModule:
    """The pending HLO with its inputs.

    proto, text: the HLO as a protocol buffer and as text.
    input_keys: the keys of the inputs (see `XlaData.known_as`).
    values: the values of the inputs, read before they are replaced.
    """

    proto: bytes
    text: str
    input_keys: Sequence[int | str | None]
    values: Sequence[torch.Tensor]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor], data: Sequence[XlaData] | None = None) -> PendingModule:
        """Return the module that computes these tensors, unexecuted. Raise RuntimeError if an op cannot be lowered."""
        entries = xla_data(tensors) if data is None else data
        values = [tensor.contiguous() for tensor in read_xla([entry.tensor for entry in entries])]
        return cls(xla_hlo_proto(tensors), xla_hlo(tensors), [entry.known_as for entry in entries], values)

    def execute(self) -> list[torch.Tensor]:
        return execute_hlo(self.proto, self.values)


@dataclass(frozen=True, slots=True, eq=False)
class XlaPending:
    """A graph that is about to be executed.

    roots: its result tensors.
    outputs: the descriptions of the results.
    draws: the module that computes the random draws, and the number of tensors that each call draws, by the call's
        index on the tape. The draws are known once the graph has been executed.
    unplayable: the reason why the calls cannot be replayed, "" if they can.
    """

    wish: Wish
    hlo: Hlo
    tape: Tape
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    roots: Sequence[torch.Tensor]
    draws: tuple[PendingModule, Mapping[int, int]] | None
    unplayable: str

    @classmethod
    def of(
        cls,
        wish: Wish,
        module: PendingModule,
        calls: PendingCalls,
        roots: Mapping[int, torch.Tensor],
        drawn: Mapping[int, Sequence[torch.Tensor]],
        before: Mapping[int, str],
        now: Mapping[int, str],
    ) -> XlaPending:
        """Return the pending graph of a module.

        drawn: the results of random calls, by the call's number.
        before, now: the script's names for values before the calls and now, by the value's number.
        """
        slots = calls.slots_before([key for key in module.input_keys if isinstance(key, int)], roots)
        stretch = calls.stretch([view for root in roots if (view := calls.view(root)) is not None], slots.values())
        inputs: dict[int, torch.Tensor] = {}
        ports: list[Port] = []
        unnamed: Counter[str] = Counter()

        def port(name: str, slot: int, value: torch.Tensor) -> Port:
            if not name:
                kind = "input" if value.dim() else "number"
                name = f"{kind} {unnamed[kind]}"
                unnamed[kind] += 1
            inputs[slot] = value
            return Port(name, laid_out(slot, value))

        for known_as, value in zip(module.input_keys, module.values, strict=True):
            name = SEED if known_as == SEED else ""
            slot = None
            if isinstance(known_as, int):
                name, slot = before.get(known_as, ""), slots.get(known_as)
            ports.append(port(name, calls.added(value).slot if slot is None else slot, value))
        parameters = tuple(input_port.view for input_port in ports)
        reason = calls.reason
        for slot in stretch.starts:  # a slot that is not an input of the HLO is a constant in it
            earlier_value = calls.before(slot)
            if slot not in inputs and earlier_value is not None:
                ports.append(port("", slot, read_xla([earlier_value])[0].contiguous()))
            elif slot not in inputs:
                reason = reason or "it starts from a value whose op was not observed"
        stored_inputs = {slot: bytes_of_storage(value) for slot, value in inputs.items()} if INPUTS in wish.held else {}
        tape = Tape(wish.execution.step, calls.slots, stored_inputs, stretch.calls, ())
        outputs = tuple(_outputs(roots, calls, tape, now))
        hlo = Hlo(module.text, module.proto, parameters)
        return cls(wish, hlo, tape, tuple(ports), outputs, list(roots.values()), _draws(stretch, drawn), reason)

    def snapshot(self, around: Circumstances, values: Sequence[torch.Tensor], reason: Reason) -> Snapshot:
        """Return the snapshot of the execution, which returned these values."""
        calls, unplayable = self.tape.calls, self.unplayable
        try:
            calls = self._with_draws()
        except RuntimeError as error:
            unplayable = unplayable or f"its random draws are unknown: {in_words(error)}"
        watched = tuple(
            watched_output(number, len(calls), port.view, value)
            for number, (port, value) in enumerate(zip(self.outputs, values, strict=True))
        )
        return Snapshot(
            self.wish.execution,
            replace(around, devices=("xla",)),
            reason,
            self.wish.held,
            self.inputs,
            self.outputs,
            replace(self.tape, calls=calls, watched=watched),
            unplayable=unplayable,
            hlo=self.hlo,
        )

    def _with_draws(self) -> tuple[Call, ...]:
        """Return the calls, random ones with their draws. Only the draws' graph is executed, from the same seed."""
        if self.draws is None:
            return self.tape.calls
        module, counts = self.draws
        values = iter(module.execute())
        calls = list(self.tape.calls)
        for place, count in counts.items():
            calls[place] = replace(calls[place], draw=Draw((), tuple(next(values) for _ in range(count))))
        return tuple(calls)


def _outputs(roots: Iterable[int], calls: PendingCalls, tape: Tape, now: Mapping[int, str]) -> Iterator[Port]:
    """Yield the ports of the result tensors, named as in the script, or after the ops that made them."""
    made_views = made_or_written(tape)
    for number in roots:
        view = calls.view(number)
        assert view is not None  # it is a root because a call returned it
        name = now.get(number, "") or made_views.get(view.slot, ("output",))[0]
        changed = name.partition(" ")[0] in CHANGING
        yield Port(f"{name}{AFTERWARDS}" if changed else name, view)


def _draws(
    stretch: Stretch, drawn: Mapping[int, Sequence[torch.Tensor]]
) -> tuple[PendingModule, Mapping[int, int]] | None:
    """Return the module of the draws, and the number of tensors by the index of the call. None if nothing was drawn.

    A random call whose graph has no seed, such as an attention without dropout, has drawn nothing.
    """
    drawn_by_place = {
        place: drawn[number]
        for place, number in enumerate(stretch.numbers)
        if number in drawn and any(entry.known_as == SEED for entry in xla_data(drawn[number]))
    }
    if not drawn_by_place:
        return None
    return PendingModule.of([tensor for tensors in drawn_by_place.values() for tensor in tensors]), {
        place: len(tensors) for place, tensors in drawn_by_place.items()
    }

"""Calls of ops on lists, taken apart: `_foreach_add_([a, b], [c, d])` as the same op on [a], [c], then on [b], [d].

An optimizer updates all parameters in one call on an accelerator, but one parameter after the other on the CPU. When
the two sides of a pair differ in this, the calls on lists are taken apart, so that each update has its counterpart. The
kernel is still that of the op on lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...records.modes.mode_spec import ModeSpec
from ..op_places import owners_of
from ..replaying.laid_out import LaidOut
from ..replaying.replay import Computation
from ..tape import Call, Tape
from .step_kernels import StepKernels, executed_apart

PREFIX = "_foreach_"


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """The origin of a call of a tape that was taken apart.

    position: the position of the original call in the whole tape
    place: the index of the call's tensors in the lists of the original call, None for a call that was left whole
    """

    position: int
    place: int | None = None


def list_ops(tape: Tape) -> frozenset[str]:
    """Return the names of the ops on lists that a tape calls."""
    return frozenset(call.name for call in tape.calls if call.name.startswith(PREFIX))


def taken_apart(tape: Tape) -> tuple[Tape, tuple[CallOrigin, ...]]:
    """Return the tape with its calls on lists taken apart, and the origin of each of its calls."""
    calls: list[Call] = []
    origins: list[CallOrigin] = []
    starts: list[int] = []  # the new position of each call, by its old position
    for position, call in enumerate(tape.calls):
        starts.append(len(calls))
        count = _length(call)
        parts = [call] if count is None else [_part(call, place, count) for place in range(count)]
        calls += [part if part.repeats is None else replace(part, repeats=starts[part.repeats]) for part in parts]
        origins += [CallOrigin(position, None if count is None else place) for place in range(len(parts))]
    starts.append(len(calls))
    watched = tuple(replace(value, position=starts[value.position]) for value in tape.watched)
    batch = tuple(replace(value, position=starts[value.position]) for value in tape.batch)
    # A call on a list concerns all parameters in the list; each part concerns only one.
    owners = owners_of(calls, watched)
    calls = [
        call if origin.place is None else replace(call, owners=parameters or call.owners)
        for call, origin, parameters in zip(calls, origins, owners, strict=True)
    ]
    return replace(tape, calls=tuple(calls), watched=watched, batch=batch), tuple(origins)


def _length(call: Call) -> int | None:
    """Return the length of the lists of a call, None for a call that is left whole."""
    if not call.name.startswith(PREFIX) or call.settled is not None:
        return None
    lengths = {len(value) for value in (*call.arguments, *call.keywords.values()) if isinstance(value, tuple)}
    if len(lengths) != 1 or 0 in lengths:
        return None
    (count,) = lengths
    return count if len(call.outputs) in (0, count) else None


def _part(call: Call, place: int, count: int) -> Call:
    def part(value: Any) -> Any:
        return (value[place],) if isinstance(value, tuple) else value

    whole = len(call.outputs) != count
    return replace(
        call,
        arguments=tuple(map(part, call.arguments)),
        keywords={name: part(value) for name, value in call.keywords.items()},
        outputs=call.outputs if whole else (call.outputs[place],),
        fresh=call.fresh if whole else (call.fresh[place],),
    )


class TakenApartKernels:
    """The kernels of a step whose calls on lists were taken apart, based on the kernels of the whole step."""

    def __init__(self, kernels: StepKernels, origins: Sequence[CallOrigin]) -> None:
        self._kernels = kernels
        self._origins = origins

    @property
    def notes(self) -> Sequence[str]:
        return self._kernels.notes

    def digests(self) -> list[list[str | None]]:
        digests = self._kernels.digests()
        return [list(_of_part(digests[origin.position], origin)) for origin in self._origins]

    def prepare(self, positions: Sequence[int]) -> None:
        whole = [origin.position for origin in map(self._origins.__getitem__, positions) if origin.place is None]
        self._kernels.prepare(whole)

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        origin = self._origins[computation.position]
        if origin.place is not None:
            return executed_apart(computation, arguments, keywords)
        return self._kernels.execute(replace(computation, position=origin.position), arguments, keywords)

    def called(self, position: int) -> list[LaidOut] | None:
        origin = self._origins[position]
        return self._kernels.called(origin.position) if origin.place is None else None

    def value(self, position: int) -> list[torch.Tensor] | None:
        origin = self._origins[position]
        values = self._kernels.value(origin.position)
        return None if values is None else list(_of_part(values, origin))

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        return self._kernels.recompiled(tape, spec, own)


def _of_part(values: Sequence[Any], origin: CallOrigin) -> Iterator[Any]:
    """Yield the values of a part from the values of its whole call: an op on lists has one result per tensor."""
    if origin.place is None:
        yield from values
    elif origin.place < len(values):
        yield values[origin.place]

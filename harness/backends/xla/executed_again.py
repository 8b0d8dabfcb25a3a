"""A step of torch_xla executed once more, to read what its ops gave.

What an op of a graph gives is nowhere once XLA has compiled the graph: it is computed within a fusion and let go. So
the ops are given to torch_xla again, cut where they were, and some of their values are held, which makes them outputs
of the graph. That may change what XLA fuses, and so the results. They count only where what the step is compared by
has the bits that it had; values that change it are looked for by halving, and left out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...tape.replay import is_same
from ...tape.tape import Call, View, leaves, mapped
from ...torch_private.dispatching import bare_execution
from ...torch_private.xla import execute_pending, read_xla, xla_generator_kept

ValueNumber = int
"""torch_xla's number of a value."""

OVERWRITING = ("aten::copy",)
"""Ops that give a new value by their schema, which torch_xla (2.9) writes over their first argument."""

UNREAD: Mapping[str, tuple[int, ...]] = {"aten::nll_loss_forward": (1,), "aten::nll_loss2d_forward": (1,)}
"""Results of which torch_xla (2.9) gives no value that counts, by their place: as the sum of the weights it gives 1,
which its backward does not read."""

MOST_EXECUTIONS = 24
"""So often one step is executed again to find which values can be read, each time compiled anew."""

READING_SECONDS = 60.0
"""For so long more values of a step are looked for; what is not known then is compiled by itself where it is needed."""


@dataclass(frozen=True, slots=True)
class Given:
    """An argument: the value of this number."""

    number: ValueNumber


@dataclass(frozen=True, slots=True, eq=False)
class ExecutedOp:
    """An op that torch_xla was given. Its arguments have a `Given` for each tensor of the device; `outputs` are the
    numbers of its flat results, None for what is no tensor of the device. It is the call `position` of the tape. What
    was `drawn` is not drawn again. `unread` are results, by their place, of which torch_xla gives no value that counts,
    with the one that they have on the CPU."""

    operation: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    outputs: tuple[ValueNumber | None, ...] = ()
    position: int = -1
    drawn: Sequence[torch.Tensor] | None = None
    unread: Mapping[int, torch.Tensor] = field(default_factory=dict)

    def given(self) -> list[ValueNumber]:
        """The numbers of the values that it takes, in their order."""
        return [one.number for one in leaves((*self.arguments, *self.keywords.values())) if isinstance(one, Given)]

    def number_of(self, view: View, call: Call) -> ValueNumber | None:
        """The number of the value that is this view among what the call takes."""
        ours = leaves((*self.arguments, *self.keywords.values()))
        theirs = leaves((*call.arguments, *(call.keywords[name] for name in self.keywords)))
        pairs = zip(ours, theirs, strict=True)
        return next((one.number for one, other in pairs if other == view and isinstance(one, Given)), None)


@dataclass(frozen=True, slots=True)
class StepCut:
    """All that was pending was executed here, and the values `alive` were held by somebody."""

    alive: frozenset[ValueNumber]


@dataclass(slots=True, eq=False)
class Program:
    """A step: the values from before it, its ops and cuts, and its results by their names, with what they were.
    `rewritten` are values that an op writes past every name, which are asked for as they are at the end."""

    inputs: dict[ValueNumber, torch.Tensor] = field(default_factory=dict)
    ops: list[ExecutedOp | StepCut] = field(default_factory=list)
    results: dict[str, tuple[ValueNumber, torch.Tensor]] = field(default_factory=dict)
    rewritten: set[ValueNumber] = field(default_factory=set)


def executed_again(program: Program, wanted: Collection[ValueNumber]) -> dict[ValueNumber, torch.Tensor] | None:
    """The values `wanted`, on the CPU, and those that are rewritten as they are at the end; None where the step gives
    other results with these values held than it gave. Raises what torch_xla raises."""
    held = {*wanted, *(number for number, _ in program.results.values())}
    last = {number: at for at, one in enumerate(program.ops) if isinstance(one, ExecutedOp) for number in one.given()}
    values: dict[ValueNumber, torch.Tensor] = {}

    def value(argument: Any) -> Any:
        return values[argument.number] if isinstance(argument, Given) else argument

    with xla_generator_kept(), torch.no_grad(), bare_execution():
        for number, content in program.inputs.items():
            values[number] = content.to("xla")
        for at, one in enumerate(program.ops):
            if isinstance(one, StepCut):
                kept = held | one.alive | {number for number, place in last.items() if place > at} | {*program.inputs}
                values = {number: tensor for number, tensor in values.items() if number in kept}
                execute_pending()
                continue
            if one.drawn is not None:
                made: Sequence[Any] = [drawn.to("xla") for drawn in one.drawn]
            else:
                named = {name: mapped(value, each) for name, each in one.keywords.items()}
                arguments = mapped(value, one.arguments)
                if one.operation.name() in OVERWRITING:
                    before = one.given()[0]
                    if before in held:
                        values[before] = values[before].clone()
                outputs = one.operation(*arguments, **named)
                made = [] if outputs is None else list(leaves(outputs))
                del outputs, named, arguments
            pairs = zip(one.outputs, made, strict=True)
            values |= {number: tensor for number, tensor in pairs if number is not None}
            del made, pairs  # what is held here would be an output of the graph
        execute_pending()
        read = held | program.rewritten
        numbers = [number for number in values if number in read]
        found = dict(zip(numbers, read_xla([values[number] for number in numbers]), strict=True))
    same = all(number in found and is_same(found[number], real) for number, real in program.results.values())
    return found if same else None


ValueKey = tuple[str, int]
"""A value by the op that makes it and its place among what ops of that name make in the step."""


@dataclass(frozen=True, slots=True)
class WantedValue:
    """A value to be read. `fused` says that XLA computes its elements within a loop with those of other ops."""

    number: ValueNumber
    key: ValueKey
    fused: bool


@dataclass(slots=True, eq=False)
class ReadValues:
    """What is known of the values of a step: `found` by their numbers. `repeats` says that executed once more as it was
    the step gives its own results."""

    found: dict[ValueNumber, torch.Tensor] = field(default_factory=dict)
    repeats: bool = True


def read_values(program: Program, wanted: Sequence[WantedValue], unreadable: set[ValueKey]) -> ReadValues:
    """Read as many of these values as can be, in the time there is. `unreadable` are those that were found to change
    the results in an earlier step; those of this one are added. Raises what torch_xla raises.

    What one op of a name gives is mostly as readable as what another gives, so a group of values is parted by names
    before it is parted by places, and first of all into what is fused and what is not.

        a0 b0 b1 c0, of which b1 is to blame: all of them fail, and so do [b0 b1] and [b1]; [a0 c0] and [b0] are read
    """
    whole = [one for one in wanted if one.key not in unreadable]
    known, left, until = ReadValues(), MOST_EXECUTIONS, time.monotonic() + READING_SECONDS
    waiting = [whole]
    while waiting and left > 0 and time.monotonic() < until:
        # What has several names first, then the largest: it may give the most
        group = max(waiting, key=lambda one: (len({each.key[0] for each in one}) > 1, len(one)))
        waiting.remove(group)
        left -= 1
        found = executed_again(program, [one.number for one in group])
        if found is not None:
            known.found |= found
            continue
        if group is whole:
            # Without any value held it gives other results, too: no value is to blame, so none is looked for.
            left -= 1
            bare = executed_again(program, ())
            if bare is None:
                known.repeats = False
                return known
            known.found |= bare
        parts = _parts(group)
        if parts:
            waiting += parts
        else:
            unreadable.update(one.key for one in group)
    return known


def _parts(group: Sequence[WantedValue]) -> list[list[WantedValue]]:
    """A group of values in two; nothing of a single one."""
    names = list(dict.fromkeys(one.key[0] for one in group))
    apart = {one.key[0] for one in group if one.fused}
    if not apart or len(apart) == len(names):
        apart = {*names[len(names) // 2 :]} if len(names) > 1 else set()
    if apart:
        return [[one for one in group if (one.key[0] in apart) == is_apart] for is_apart in (False, True)]
    half = len(group) // 2
    return [list(group[:half]), list(group[half:])] if half else []

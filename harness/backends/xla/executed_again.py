"""Execute a step of torch_xla again, to read the results of its ops.

A graph that XLA has compiled does not store the results of its ops: a fusion computes and discards them. The ops are
therefore called again with the same cuts, while some of their values are held. Held values become outputs of the graph.
That may change which ops XLA fuses, and so the results. The held values are used only if the results of the step keep
their bits. Held values that change those bits are found by bisection and left out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...tape.replaying.replay import is_same
from ...tape.tape import Call, View, leaves, mapped
from ...torch_private.deferred.xla import execute_pending, read_xla, xla_generator_kept
from ...torch_private.dispatching import bare_execution

ValueNumber = int
"""torch_xla's number for a value."""

OVERWRITING = ("aten::copy",)
"""Ops that, by their schema, return a new value, but whose result torch_xla (2.9) writes over the first argument."""

UNREAD: Mapping[str, tuple[int, ...]] = {"aten::nll_loss_forward": (1,), "aten::nll_loss2d_forward": (1,)}
"""The indices of results that torch_xla (2.9) does not compute.

That result is the sum of the weights, in place of which torch_xla returns 1. The backwards of these ops do not read it.
"""

MOST_EXECUTIONS = 24
"""The maximum number of times that one step is compiled and executed to find the values that can be read."""

READING_SECONDS = 60.0
"""The seconds after which no more values of a step are read.

If the result of an op is still unknown by then, the op is compiled separately when its result is needed.
"""


@dataclass(frozen=True, slots=True)
class ValueArgument:
    """An argument of an op: the value with this number."""

    number: ValueNumber


@dataclass(frozen=True, slots=True, eq=False)
class ExecutedOp:
    """An op that torch_xla was called with.

    arguments, keywords: the arguments, with a `ValueArgument` in place of each tensor on the device.
    outputs: the numbers of its flat results, None for a result that is not a tensor on the device.
    position: the index of its call on the tape.
    drawn: the random numbers that it drew, which are not drawn again; None for an op that draws none.
    unread: the results that torch_xla does not compute, by their indices, with their values on the CPU.
    """

    operation: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    outputs: tuple[ValueNumber | None, ...] = ()
    position: int = -1
    drawn: Sequence[torch.Tensor] | None = None
    unread: Mapping[int, torch.Tensor] = field(default_factory=dict)

    def value_numbers(self) -> list[ValueNumber]:
        """Return the numbers of the values that the op takes, in order."""
        return [
            leaf.number
            for leaf in leaves((*self.arguments, *self.keywords.values()))
            if isinstance(leaf, ValueArgument)
        ]

    def number_of(self, view: View, call: Call) -> ValueNumber | None:
        """Return the number of the argument that is `view` in the call on the tape, None if there is none."""
        own_leaves = leaves((*self.arguments, *self.keywords.values()))
        call_leaves = leaves((*call.arguments, *(call.keywords[name] for name in self.keywords)))
        pairs = zip(own_leaves, call_leaves, strict=True)
        return next(
            (leaf.number for leaf, call_leaf in pairs if call_leaf == view and isinstance(leaf, ValueArgument)), None
        )


@dataclass(frozen=True, slots=True)
class StepCut:
    """A cut in the step: all pending work was executed, while the values `alive` were held."""

    alive: frozenset[ValueNumber]


@dataclass(slots=True, eq=False)
class Program:
    """A step in a form that can be executed again.

    inputs: the values that it starts from.
    ops: its ops and cuts.
    results: the number and the content of each of its results, by name.
    rewritten: the values that an op overwrites without returning them. They are read at the end of the step.
    """

    inputs: dict[ValueNumber, torch.Tensor] = field(default_factory=dict)
    ops: list[ExecutedOp | StepCut] = field(default_factory=list)
    results: dict[str, tuple[ValueNumber, torch.Tensor]] = field(default_factory=dict)
    rewritten: set[ValueNumber] = field(default_factory=set)


def executed_again(program: Program, wanted: Collection[ValueNumber]) -> dict[ValueNumber, torch.Tensor] | None:
    """Execute a step again. Return the values `wanted` and the final content of rewritten values, on the CPU.

    Return None if holding these values changes the step's results. Exceptions of torch_xla propagate.
    """
    held = {*wanted, *(number for number, _ in program.results.values())}
    last = {
        number: at for at, op in enumerate(program.ops) if isinstance(op, ExecutedOp) for number in op.value_numbers()
    }
    values: dict[ValueNumber, torch.Tensor] = {}

    def value(argument: Any) -> Any:
        return values[argument.number] if isinstance(argument, ValueArgument) else argument

    with xla_generator_kept(), torch.no_grad(), bare_execution():
        for number, content in program.inputs.items():
            values[number] = content.to("xla")
        for at, op in enumerate(program.ops):
            if isinstance(op, StepCut):
                kept = held | op.alive | {number for number, use in last.items() if use > at} | {*program.inputs}
                values = {number: tensor for number, tensor in values.items() if number in kept}
                execute_pending()
                continue
            if op.drawn is not None:
                results: Sequence[Any] = [drawn.to("xla") for drawn in op.drawn]
            else:
                keywords = {name: mapped(value, argument) for name, argument in op.keywords.items()}
                arguments = mapped(value, op.arguments)
                if op.operation.name() in OVERWRITING:
                    overwritten = op.value_numbers()[0]
                    if overwritten in held:
                        values[overwritten] = values[overwritten].clone()
                outputs = op.operation(*arguments, **keywords)
                results = [] if outputs is None else list(leaves(outputs))
                del outputs, keywords, arguments
            pairs = zip(op.outputs, results, strict=True)
            values |= {number: tensor for number, tensor in pairs if number is not None}
            del results, pairs  # a tensor held here would become an output of the graph
        execute_pending()
        to_read = held | program.rewritten
        numbers = [number for number in values if number in to_read]
        contents = dict(zip(numbers, read_xla([values[number] for number in numbers]), strict=True))
    same = all(number in contents and is_same(contents[number], real) for number, real in program.results.values())
    return contents if same else None


ValueKey = tuple[str, int]
"""A value: the name of its op, and its index among the values that ops of that name compute in the step."""


@dataclass(frozen=True, slots=True)
class WantedValue:
    """A value to read. It is `fused` if XLA computes its elements in one loop with those of other ops."""

    number: ValueNumber
    key: ValueKey
    fused: bool


@dataclass(slots=True, eq=False)
class ReadValues:
    """The values of a step that could be read.

    found: the values by their numbers.
    repeats: whether the step has the same results if it is executed again without changes.
    """

    found: dict[ValueNumber, torch.Tensor] = field(default_factory=dict)
    repeats: bool = True


def read_values(program: Program, wanted: Sequence[WantedValue], unreadable: set[ValueKey]) -> ReadValues:
    """Read as many of these values as possible within the limits of time and executions.

    `unreadable` holds the values that changed the results in an earlier step. The values that do so in this step are
    added to it. Exceptions of torch_xla propagate.

    The values of ops of the same name are usually all readable or all unreadable. A group of values is therefore split
    first into fused values and others, then by names, and only then by positions.

        a0 b0 b1 c0, where only b is fused and b1 is to blame:
        the whole group, [b0 b1] and [b1] fail; [a0 c0] and [b0] are read
    """
    whole = [value for value in wanted if value.key not in unreadable]
    outcome, executions_left, deadline = ReadValues(), MOST_EXECUTIONS, time.monotonic() + READING_SECONDS
    waiting = [whole]
    while waiting and executions_left > 0 and time.monotonic() < deadline:
        # Groups with several names come first, then the largest group, which may yield the most values.
        group = max(waiting, key=lambda values: (len({value.key[0] for value in values}) > 1, len(values)))
        waiting.remove(group)
        executions_left -= 1
        contents = executed_again(program, [value.number for value in group])
        if contents is not None:
            outcome.found |= contents
            continue
        if group is whole:
            # If the results differ even when no value is held, no value is to blame, and the search ends.
            executions_left -= 1
            bare = executed_again(program, ())
            if bare is None:
                outcome.repeats = False
                return outcome
            outcome.found |= bare
        parts = _parts(group)
        if parts:
            waiting += parts
        else:
            unreadable.update(value.key for value in group)
    return outcome


def _parts(group: Sequence[WantedValue]) -> list[list[WantedValue]]:
    """Split a group of values in two. Return an empty list for a single value."""
    names = list(dict.fromkeys(value.key[0] for value in group))
    apart = {value.key[0] for value in group if value.fused}
    if not apart or len(apart) == len(names):
        apart = {*names[len(names) // 2 :]} if len(names) > 1 else set()
    if apart:
        return [[value for value in group if (value.key[0] in apart) == is_apart] for is_apart in (False, True)]
    half = len(group) // 2
    return [list(group[:half]), list(group[half:])] if half else []

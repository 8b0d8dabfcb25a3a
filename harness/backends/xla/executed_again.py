"""Execute a step of torch_xla once more, to read the results of its ops.

Once XLA has compiled a graph, the results of its ops are stored nowhere: a fusion computes and discards them. So the
ops are called again, with the same cuts, and some of their values are held, which makes them outputs of the graph. That
may change what XLA fuses, and so the results. The values count only where the values that the step is compared by keep
their bits. Values that change these are found by halving, and left out.
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
"""Ops that return a new value by their schema, but whose result torch_xla (2.9) writes over their first argument."""

UNREAD: Mapping[str, tuple[int, ...]] = {"aten::nll_loss_forward": (1,), "aten::nll_loss2d_forward": (1,)}
"""The indices of results that torch_xla (2.9) does not compute.

For the sum of the weights it returns 1, which its backward does not read.
"""

MOST_EXECUTIONS = 24
"""The number of times that one step may be executed to find the values that can be read, each time compiled anew."""

READING_SECONDS = 60.0
"""The time within which more values of a step are read.

An op whose result is unknown after that is compiled by itself where it is needed.
"""


@dataclass(frozen=True, slots=True)
class Given:
    """An argument that is the value with this number."""

    number: ValueNumber


@dataclass(frozen=True, slots=True, eq=False)
class ExecutedOp:
    """An op that torch_xla was called with: the call `position` of the tape.

    Its arguments have a `Given` in place of each tensor of the device. `outputs` are the numbers of its flat results,
    None for a result that is no tensor of the device. Values that were `drawn` are not drawn again. `unread` has the
    results that torch_xla does not compute, by their indices, with their values on the CPU.
    """

    operation: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    outputs: tuple[ValueNumber | None, ...] = ()
    position: int = -1
    drawn: Sequence[torch.Tensor] | None = None
    unread: Mapping[int, torch.Tensor] = field(default_factory=dict)

    def given(self) -> list[ValueNumber]:
        """Return the numbers of the values that the op takes, in their order."""
        return [leaf.number for leaf in leaves((*self.arguments, *self.keywords.values())) if isinstance(leaf, Given)]

    def number_of(self, view: View, call: Call) -> ValueNumber | None:
        """Return the number of the argument of the call that is this view, None where there is none."""
        own_leaves = leaves((*self.arguments, *self.keywords.values()))
        call_leaves = leaves((*call.arguments, *(call.keywords[name] for name in self.keywords)))
        pairs = zip(own_leaves, call_leaves, strict=True)
        return next((leaf.number for leaf, call_leaf in pairs if call_leaf == view and isinstance(leaf, Given)), None)


@dataclass(frozen=True, slots=True)
class StepCut:
    """A cut of the step: all pending work was executed here, while the values `alive` were held."""

    alive: frozenset[ValueNumber]


@dataclass(slots=True, eq=False)
class Program:
    """A step: the values from before it, its ops and cuts, and its results by name, each with its value.

    `rewritten` are values that an op overwrites without returning them. They are read as they are at the end.
    """

    inputs: dict[ValueNumber, torch.Tensor] = field(default_factory=dict)
    ops: list[ExecutedOp | StepCut] = field(default_factory=list)
    results: dict[str, tuple[ValueNumber, torch.Tensor]] = field(default_factory=dict)
    rewritten: set[ValueNumber] = field(default_factory=set)


def executed_again(program: Program, wanted: Collection[ValueNumber]) -> dict[ValueNumber, torch.Tensor] | None:
    """Execute a step again and return the values `wanted`, on the CPU, and the rewritten ones as they are at the end.

    Returns None where the step has other results than before while these values are held. Raises what torch_xla raises.
    """
    held = {*wanted, *(number for number, _ in program.results.values())}
    last = {number: at for at, op in enumerate(program.ops) if isinstance(op, ExecutedOp) for number in op.given()}
    values: dict[ValueNumber, torch.Tensor] = {}

    def value(argument: Any) -> Any:
        return values[argument.number] if isinstance(argument, Given) else argument

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
                    overwritten = op.given()[0]
                    if overwritten in held:
                        values[overwritten] = values[overwritten].clone()
                outputs = op.operation(*arguments, **keywords)
                results = [] if outputs is None else list(leaves(outputs))
                del outputs, keywords, arguments
            pairs = zip(op.outputs, results, strict=True)
            values |= {number: tensor for number, tensor in pairs if number is not None}
            del results, pairs  # what is held here would be an output of the graph
        execute_pending()
        to_read = held | program.rewritten
        numbers = [number for number in values if number in to_read]
        contents = dict(zip(numbers, read_xla([values[number] for number in numbers]), strict=True))
    same = all(number in contents and is_same(contents[number], real) for number, real in program.results.values())
    return contents if same else None


ValueKey = tuple[str, int]
"""A value, named by the op that makes it and its index among the values that ops of that name make in the step."""


@dataclass(frozen=True, slots=True)
class WantedValue:
    """A value to read. `fused` says that XLA computes its elements in one loop with those of other ops."""

    number: ValueNumber
    key: ValueKey
    fused: bool


@dataclass(slots=True, eq=False)
class ReadValues:
    """The values of a step that could be read: `found`, by their numbers.

    `repeats` says that the step, executed once more without changes, has the same results.
    """

    found: dict[ValueNumber, torch.Tensor] = field(default_factory=dict)
    repeats: bool = True


def read_values(program: Program, wanted: Sequence[WantedValue], unreadable: set[ValueKey]) -> ReadValues:
    """Read as many of these values as possible within the limits of time and executions.

    `unreadable` holds the values that changed the results in an earlier step; those of this step are added. Raises what
    torch_xla raises.

    The values of ops of one name are mostly equally readable. So a group of values is split by names before it is split
    by positions, and first of all into fused values and others.

        a0 b0 b1 c0, of which b1 is to blame: all of them fail, and so do [b0 b1] and [b1]; [a0 c0] and [b0] are read
    """
    whole = [value for value in wanted if value.key not in unreadable]
    outcome, executions_left, deadline = ReadValues(), MOST_EXECUTIONS, time.monotonic() + READING_SECONDS
    waiting = [whole]
    while waiting and executions_left > 0 and time.monotonic() < deadline:
        # Groups with several names come first, then the largest: reading it may yield the most
        group = max(waiting, key=lambda values: (len({value.key[0] for value in values}) > 1, len(values)))
        waiting.remove(group)
        executions_left -= 1
        contents = executed_again(program, [value.number for value in group])
        if contents is not None:
            outcome.found |= contents
            continue
        if group is whole:
            # If the results differ even with no value held, no value is to blame, and the search ends.
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
    """Split a group of values in two; return nothing for a single value."""
    names = list(dict.fromkeys(value.key[0] for value in group))
    apart = {value.key[0] for value in group if value.fused}
    if not apart or len(apart) == len(names):
        apart = {*names[len(names) // 2 :]} if len(names) > 1 else set()
    if apart:
        return [[value for value in group if (value.key[0] in apart) == is_apart] for is_apart in (False, True)]
    half = len(group) // 2
    return [list(group[:half]), list(group[half:])] if half else []

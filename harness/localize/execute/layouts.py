"""The test of an op whose arguments the sides lay out differently: swap the layouts alone, and compare the bits.

K are the kernels of both sides, x the values and L each side's layout of them:

    K_a(x laid out as L_b) == K_b(x as L_b)    swapped in: the layout alone makes side b's bits
    K_b(x laid out as L_a) == K_a(x as L_a)    swapped out: without it they are side a's

    >>> x = torch.arange(6.0).reshape(2, 3)
    >>> for one in x, relaid(x, LaidOut((2, 3), (1, 2), 0)), relaid(x, LaidOut((2, 3), (3, 1), 4)):
    ...     print(in_words(LaidOut.of(one)))
    contiguous (3, 1)
    transposed (1, 2)
    contiguous (3, 1), beginning 4 bytes off a 64-byte boundary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ...tape.replaying.laid_out import LaidOut, relaid
from ...tape.replaying.replay import call_arguments, is_same
from ...tape.tape import Call, View, leaves, mapped
from ...torch_private.operators import arguments_of
from ..align.storage_flow import SIDES, FlowNode, Side, other
from .hybrid import HybridExecution, storages_read
from .step_memory import Memory
from .verification import SideKernels
from .worker import tensors_among


@dataclass(frozen=True, slots=True)
class RelaidArgument:
    """An argument that the two sides lay out differently.

    number: its number, from 1 on.
    name: its name in the op's schema.
    lies: its layout on each side.
    copied_by: by side, the op (and its line) that makes it and that only this side executes.
    within: the sides whose compiled code lays it out itself.
    """

    number: int
    name: str
    lies: Mapping[Side, LaidOut]
    copied_by: Mapping[Side, str]
    within: tuple[Side, ...] = ()


Effect = Literal["layout", "kernel in a", "kernel in b", "kernel"]
"""The cause of the other bits: the layout alone, kernels that differ only in one side's layout, or kernels that differ
in both layouts."""


@dataclass(frozen=True, slots=True)
class SwappedLayout:
    effect: Effect
    arguments: tuple[RelaidArgument, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """The inputs of one side's call."""

    number: int
    node: FlowNode
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return tensors_among(self.arguments, self.keywords)

    def laid_out(self, layouts: Sequence[LaidOut]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with their tensors copied to new memory in these layouts."""
        remaining = iter(layouts)

        def one(value: Any) -> Any:
            return relaid(value, next(remaining)) if isinstance(value, torch.Tensor) else value

        arguments: tuple[Any, ...] = mapped(one, self.arguments)
        return arguments, {name: mapped(one, value) for name, value in self.keywords.items()}


def swapped_layout(execution: HybridExecution, number: int, before: Memory) -> SwappedLayout | None:
    """Swap the layouts of the inputs of both sides' calls in a pair; `before` is the memory at the start of the block.

    Return None if the inputs differ in value or have the same layouts. Raises whatever an op raises.
    """
    inputs = _taken(execution, number, before)
    a, b = inputs["a"], inputs["b"]
    same_values = len(a.tensors) == len(b.tensors) and all(map(is_same, a.tensors, b.tensors))
    if not same_values or list(a.keywords) != list(b.keywords) or _shares_what_it_writes(a, b):
        return None
    recorded = {side: list(map(LaidOut.of, inputs[side].tensors)) for side in SIDES}
    # Generated code may copy its inputs into another layout, and then call the op itself.
    layouts_called = {
        side: called_with for side in SIDES if (called_with := _called(execution, side, inputs[side])) is not None
    }
    layouts = {**recorded, **layouts_called}
    differ = [
        place
        for place, (layout_a, layout_b) in enumerate(zip(layouts["a"], layouts["b"], strict=True))
        if layout_a != layout_b
    ]
    if not differ:
        return None if recorded["a"] == recorded["b"] else SwappedLayout("kernel", ())
    swap = _Swap(execution, inputs)
    if _equal(swap.own["a"], swap.own["b"]):
        return None
    effect, chosen = swap.effect(layouts, layouts_called), differ
    if effect == "layout":
        # An argument matters only if without it the layout alone no longer explains the bits.
        for dropped in differ:
            fewer = [place for place in chosen if place != dropped]
            if fewer and swap.is_of_layout(layouts, fewer, layouts_called):
                chosen = fewer
    places = _places(a.node.call, a.node.execution.operation)
    arguments = [
        RelaidArgument(
            *places[place],
            {side: layouts[side][place] for side in SIDES},
            _copies(execution, number, place),
            tuple(side for side in SIDES if layouts[side][place] != recorded[side][place]),
        )
        for place in chosen
    ]
    return SwappedLayout(effect, tuple(arguments))


def _taken(execution: HybridExecution, number: int, before: Memory) -> dict[Side, _Taken]:
    pair, inputs = execution.pair, dict[Side, _Taken]()
    for side in SIDES:
        memory, place = before.fork(), pair.blocks[number].of(side)[0]
        node = pair.flows[side].nodes[place]
        storages = storages_read(node, side, memory, execution.instead(side, place, number))
        inputs[side] = _Taken(place, node, *call_arguments(node.call, _viewed(memory, side, storages)))
    return inputs


def _called(execution: HybridExecution, side: Side, side_inputs: _Taken) -> list[LaidOut] | None:
    """Return the layouts of the inputs with which a side's compiled code called the op; None if they are unknown."""
    kernels = execution.kernels[side]
    layouts = kernels.called(side_inputs.number, side_inputs.node) if isinstance(kernels, SideKernels) else None
    return layouts if layouts is not None and len(layouts) == len(side_inputs.tensors) else None


Lies = Mapping[Side, Sequence[LaidOut]]
"""By side, the layouts of the tensors that its call takes."""


class _Swap:
    """The execution of both sides' calls on the other side's layouts; `own` are each side's results on its own ones."""

    def __init__(self, execution: HybridExecution, inputs: Mapping[Side, _Taken]) -> None:
        self._execution = execution
        self._taken = inputs
        readers = execution.pair.readers
        read = (
            [place for place, use in enumerate(inputs[side].node.made) if use.value in readers[side]] for side in SIDES
        )
        self._shown = sorted({place for side_places in read for place in side_places})
        self.own = {side: self.given(side, list(map(LaidOut.of, inputs[side].tensors))) for side in SIDES}

    def given(self, side: Side, layouts: Sequence[LaidOut]) -> list[torch.Tensor]:
        """Return the results of a side's kernel on these layouts, except those that nothing reads."""
        inputs, kernels = self._taken[side], self._execution.kernels[side]
        arguments, keywords = inputs.laid_out(layouts)
        with torch.set_grad_enabled(inputs.node.call.grad):
            outputs = kernels.execute(inputs.number, inputs.node, arguments, keywords)
        made_outputs = [
            output for made_use, output in zip(inputs.node.makes, outputs, strict=True) if made_use is not None
        ]
        results = [*made_outputs, *inputs.node.execution.written(arguments, keywords)]
        home = self._execution.pair.flows["a"].tape.slots  # compare on one device
        places = [home[use.value.slot].device for use in self._taken["a"].node.made]
        return [results[place].to(places[place], copy=True) for place in self._shown]

    def effect(self, layouts: Lies, called: Collection[Side]) -> Effect:
        every = range(len(layouts["a"]))
        if self.is_of_layout(layouts, every, called):
            return "layout"
        if called:
            return "kernel"
        if _equal(self.given("b", layouts["a"]), self.own["a"]):
            return "kernel in b"
        return "kernel in a" if _equal(self.given("a", layouts["b"]), self.own["b"]) else "kernel"

    def is_of_layout(self, layouts: Lies, swapped: Collection[int], called: Collection[Side]) -> bool:
        """Check whether each side's kernel computes the other side's bits if the `swapped` arguments have the other
        side's layouts.

        The sides in `called` are left out: their compiled code lays out the arguments itself before it calls the op.
        """
        for side in SIDES:
            pairs = zip(layouts[side], layouts[other(side)], strict=True)
            mixed = [
                far_layout if place in swapped else own_layout for place, (own_layout, far_layout) in enumerate(pairs)
            ]
            if side not in called and not _equal(self.given(side, mixed), self.own[other(side)]):
                return False
        return len(called) < len(SIDES)


def _viewed(memory: Memory, side: Side, storages: Mapping[int, torch.UntypedStorage]) -> Callable[[View], torch.Tensor]:
    return lambda view: memory.viewed(side, storages[view.slot], view)


def _shares_what_it_writes(*side_inputs: _Taken) -> bool:
    """Check whether a call writes memory that another of its arguments also uses, which copies would not share."""
    return any(
        sum(use.value.slot == written.slot for use in call_inputs.node.reads) > 1
        for call_inputs in side_inputs
        for written in call_inputs.node.execution.written_views()
    )


def _equal(results: Sequence[torch.Tensor], other_results: Sequence[torch.Tensor]) -> bool:
    return all(map(is_same, results, other_results))


def _places(call: Call, operation: Any) -> list[tuple[int, str]]:
    """Return, for each view of a call, the number and the name of its argument."""
    names = [argument.name for argument in arguments_of(operation)]
    given_as = [*zip(names, call.arguments, strict=False), *call.keywords.items()]
    numbered: list[tuple[int, str]] = []
    for name, value in given_as:
        number = names.index(name) + 1 if name in names else len(numbered) + 1
        views = list(leaves(value))
        for place, leaf in enumerate(views):
            if isinstance(leaf, View):
                numbered.append((number, name if leaf is value else f"{name}[{place}]"))
    return numbered


def _copies(execution: HybridExecution, number: int, place: int) -> dict[Side, str]:
    """Return, by side, the op that made the argument at this place and that the other side does not execute."""
    pair, copies = execution.pair, dict[Side, str]()
    for side in SIDES:
        flow = pair.flows[side]
        maker = flow.makers.get(flow.nodes[pair.blocks[number].of(side)[0]].reads[place].value)
        if maker is not None and not pair.blocks[pair.home[side][maker]].paired:
            call = flow.nodes[maker].call
            copies[side] = f"{call.name}{f' at {Path(call.line).name}' if call.line else ''}"
    return copies


# Layouts in words


def in_words(layout: LaidOut, *, start: bool | None = None) -> str:
    """Describe a tensor's layout.

    `start` decides whether to mention where it begins; None mentions a beginning off a 64-byte boundary.
    """
    words = f"{look_at(layout)} {_tuple(layout.stride)}"
    if layout.start if start is None else start:
        off = f"{layout.start} bytes off" if layout.start else "at"
        return f"{words}, beginning {off} a 64-byte boundary"
    return words


def looks_of(arguments: Sequence[RelaidArgument]) -> tuple[str, ...]:
    """Return the differences in the usual names of these arguments' layouts: `transposed against contiguous`."""
    looks = []
    for argument in arguments:
        look = " against ".join(look_at(argument.lies[side]) for side in SIDES)
        same_stride = argument.lies["a"].stride == argument.lies["b"].stride
        looks.append("beginning elsewhere against a 64-byte boundary" if same_stride else look)
    return tuple(sorted(set(looks)))


def both_in_words(argument: RelaidArgument, labels: Mapping[Side, str]) -> str:
    """Describe an argument with both of its layouts and the ops that made them."""
    begins = argument.lies["a"].start != argument.lies["b"].start
    sides = []
    for side in SIDES:
        makers = f" by {argument.copied_by[side]}" if side in argument.copied_by else ""
        makers += " within its generated code" if side in argument.within else ""
        sides.append(f"{in_words(argument.lies[side], start=begins)}{makers} in {labels[side]}")
    return f"argument {argument.number} ({argument.name}): {', '.join(sides)}"


def _tuple(stride: Sequence[int]) -> str:
    return f"({', '.join(map(str, stride))}{',' if len(stride) == 1 else ''})"


CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""The order of the dimensions in memory, from the slowest to the fastest, by the number of dimensions."""


def look_at(layout: LaidOut) -> str:
    """Return the usual name of a layout."""
    size, stride, dims = layout.size, layout.stride, len(layout.size)
    if any(not step and n > 1 for n, step in zip(size, stride, strict=True)):
        return "expanded"
    # With a single channel or pixel both names apply: the strides of the dimensions of size 1 decide.
    if dims in CHANNELS_LAST and 1 in size and tuple(stride) == _strides(size, CHANNELS_LAST[dims]):
        return "channels last" if tuple(stride) != _strides(size, range(dims)) else "contiguous"
    if _is_dense(size, stride, range(dims)):
        return "contiguous"
    if dims in CHANNELS_LAST and _is_dense(size, stride, CHANNELS_LAST[dims]):
        return "channels last"
    if dims >= 2 and _is_dense(size, stride, (*range(dims - 2), dims - 1, dims - 2)):
        return "transposed"
    if _is_dense(size, stride, sorted(range(dims), key=lambda dim: (-stride[dim], dim))):
        return "permuted"
    return "with gaps"


def _strides(size: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor with its dimensions in this order."""
    steps = {dim: math.prod(max(1, size[inner]) for inner in order[place + 1 :]) for place, dim in enumerate(order)}
    return tuple(steps[dim] for dim in range(len(size)))


def _is_dense(size: Sequence[int], stride: Sequence[int], order: Sequence[int]) -> bool:
    """Check whether a tensor is dense with its dimensions in this order; strides of dimensions of size 1 are
    ignored."""
    dense = _strides(size, order)
    return 0 in size or all(n == 1 or own_step == step for n, own_step, step in zip(size, stride, dense, strict=True))

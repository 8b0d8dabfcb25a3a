"""Whether an op gives other bits because its arguments lie otherwise in memory: the layouts are swapped, no more.

With K the kernels of both sides, x the values and L how each side lays them out:

    K_a(x laid out as L_b) == K_b(x as L_b)    swapped in: the layout alone makes side b's bits
    K_b(x laid out as L_a) == K_a(x as L_a)    put back: without it they are side a's

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

from ..tape.laid_out import LaidOut, relaid
from ..tape.replay import given, is_same
from ..tape.tape import Call, View, leaves, mapped
from ..torch_private.operators import arguments_of
from .held_run import tensors_among
from .hybrid import MixtureExecution, storages_read
from .step_memory import Memory
from .storage_flow import SIDES, FlowNode, Side, other
from .verification import SideKernels


@dataclass(frozen=True, slots=True)
class RelaidArgument:
    """An argument that lies otherwise on both sides: its number from 1 on and its name in the op's schema, and each
    side's layout. `copied_by` names the op, and its line, that one side alone executes to make it; `within` are
    the sides whose compiled code lays it out so by itself."""

    number: int
    name: str
    lies: Mapping[Side, LaidOut]
    copied_by: Mapping[Side, str]
    within: tuple[Side, ...] = ()


Effect = Literal["layout", "kernel in a", "kernel in b", "kernel"]
"""What makes the other bits: the layout alone; kernels, which differ in the layout of one side only; or kernels that
are others on both."""


@dataclass(frozen=True, slots=True)
class SwappedLayout:
    effect: Effect
    arguments: tuple[RelaidArgument, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """What a side's call takes."""

    number: int
    node: FlowNode
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return tensors_among(self.arguments, self.keywords)

    def laid_out(self, layouts: Sequence[LaidOut]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same values in memory of their own, laid out so."""
        wanted = iter(layouts)

        def one(value: Any) -> Any:
            return relaid(value, next(wanted)) if isinstance(value, torch.Tensor) else value

        arguments: tuple[Any, ...] = mapped(one, self.arguments)
        return arguments, {name: mapped(one, value) for name, value in self.keywords.items()}


def swapped_layout(execution: MixtureExecution, number: int, before: Memory) -> SwappedLayout | None:
    """Swap the layouts of what both sides' calls of a pair take; `before` is the memory that the block began with. None
    where they take other values, or lie alike.

    Raises what an op raises.
    """
    taken = _taken(execution, number, before)
    a, b = taken["a"], taken["b"]
    same_values = len(a.tensors) == len(b.tensors) and all(map(is_same, a.tensors, b.tensors))
    if not same_values or list(a.keywords) != list(b.keywords) or _shares_what_it_writes(a, b):
        return None
    recorded = {side: list(map(LaidOut.of, taken[side].tensors)) for side in SIDES}
    # Generated code may copy what it takes into another layout, and then call the very op.
    called = {side: found for side in SIDES if (found := _called(execution, side, taken[side])) is not None}
    lies = {**recorded, **called}
    differ = [at for at, (one, another) in enumerate(zip(lies["a"], lies["b"], strict=True)) if one != another]
    if not differ:
        return None if recorded["a"] == recorded["b"] else SwappedLayout("kernel", ())
    swap = _Swap(execution, taken)
    if _equal(swap.own["a"], swap.own["b"]):
        return None
    effect, chosen = swap.effect(lies, called), differ
    if effect == "layout":
        # Only those arguments matter without which it is not the layout's effect.
        for at in differ:
            fewer = [one for one in chosen if one != at]
            if fewer and swap.is_of_layout(lies, fewer, called):
                chosen = fewer
    places = _places(a.node.call, a.node.execution.operation)
    arguments = [
        RelaidArgument(
            *places[at],
            {side: lies[side][at] for side in SIDES},
            _copies(execution, number, at),
            tuple(side for side in SIDES if lies[side][at] != recorded[side][at]),
        )
        for at in chosen
    ]
    return SwappedLayout(effect, tuple(arguments))


def _taken(execution: MixtureExecution, number: int, before: Memory) -> dict[Side, _Taken]:
    pair, found = execution.pair, dict[Side, _Taken]()
    for side in SIDES:
        memory, place = before.fork(), pair.blocks[number].of(side)[0]
        node = pair.flows[side].nodes[place]
        storages = storages_read(node, side, memory, execution.instead(side, place, number))
        found[side] = _Taken(place, node, *given(node.call, _viewed(memory, side, storages)))
    return found


def _called(execution: MixtureExecution, side: Side, one: _Taken) -> list[LaidOut] | None:
    """How what it takes lay when the compiled code of a side called the op itself, None where that is not known."""
    kernels = execution.kernels[side]
    found = kernels.called(one.number, one.node) if isinstance(kernels, SideKernels) else None
    return found if found is not None and len(found) == len(one.tensors) else None


Lies = Mapping[Side, Sequence[LaidOut]]
"""The layouts of the tensors that both sides' calls take."""


class _Swap:
    """Executes both sides' calls on layouts that are not their own. `own` is what each gives on its own."""

    def __init__(self, execution: MixtureExecution, taken: Mapping[Side, _Taken]) -> None:
        self._execution = execution
        self._taken = taken
        readers = execution.pair.readers
        read = ([at for at, use in enumerate(taken[side].node.made) if use.value in readers[side]] for side in SIDES)
        self._shown = sorted({at for each in read for at in each})
        self.own = {side: self.given(side, list(map(LaidOut.of, taken[side].tensors))) for side in SIDES}

    def given(self, side: Side, lies: Sequence[LaidOut]) -> list[torch.Tensor]:
        """What a side's kernel gives on these layouts, of that which anything reads."""
        one, kernels = self._taken[side], self._execution.kernels[side]
        arguments, keywords = one.laid_out(lies)
        with torch.set_grad_enabled(one.node.call.grad):
            outputs = kernels.execute(one.number, one.node, arguments, keywords)
        fresh = [output for made, output in zip(one.node.makes, outputs, strict=True) if made is not None]
        found = [*fresh, *one.node.execution.written(arguments, keywords)]
        home = self._execution.pair.flows["a"].tape.slots  # what is compared lies on one device
        places = [home[use.value.slot].device for use in self._taken["a"].node.made]
        return [found[at].to(places[at], copy=True) for at in self._shown]

    def effect(self, lies: Lies, called: Collection[Side]) -> Effect:
        every = range(len(lies["a"]))
        if self.is_of_layout(lies, every, called):
            return "layout"
        if called:
            return "kernel"
        if _equal(self.given("b", lies["a"]), self.own["a"]):
            return "kernel in b"
        return "kernel in a" if _equal(self.given("a", lies["b"]), self.own["b"]) else "kernel"

    def is_of_layout(self, lies: Lies, swapped: Collection[int], called: Collection[Side]) -> bool:
        """Whether each side's kernel gives the other side's bits once these of its arguments lie as there. One whose
        compiled code has `called` the op lays them out by itself, and cannot be made to take them otherwise."""
        for side in SIDES:
            pairs = zip(lies[side], lies[other(side)], strict=True)
            mixed = [far if at in swapped else own for at, (own, far) in enumerate(pairs)]
            if side not in called and not _equal(self.given(side, mixed), self.own[other(side)]):
                return False
        return len(called) < len(SIDES)


def _viewed(memory: Memory, side: Side, storages: Mapping[int, torch.UntypedStorage]) -> Callable[[View], torch.Tensor]:
    return lambda view: memory.viewed(side, storages[view.slot], view)


def _shares_what_it_writes(*taken: _Taken) -> bool:
    """Whether a call writes memory that it also takes by another argument: laid out anew it would not."""
    return any(
        sum(use.value.slot == one.slot for use in each.node.reads) > 1
        for each in taken
        for one in each.node.execution.written_views()
    )


def _equal(one: Sequence[torch.Tensor], another: Sequence[torch.Tensor]) -> bool:
    return all(map(is_same, one, another))


def _places(call: Call, operation: Any) -> list[tuple[int, str]]:
    """Number and name of the argument that each view of a call belongs to."""
    names = [one.name for one in arguments_of(operation)]
    given_as = [*zip(names, call.arguments, strict=False), *call.keywords.items()]
    found: list[tuple[int, str]] = []
    for name, value in given_as:
        number = names.index(name) + 1 if name in names else len(found) + 1
        views = list(leaves(value))
        for at, leaf in enumerate(views):
            if isinstance(leaf, View):
                found.append((number, name if leaf is value else f"{name}[{at}]"))
    return found


def _copies(execution: MixtureExecution, number: int, at: int) -> dict[Side, str]:
    """By side the op without a counterpart that made argument number `at`."""
    pair, found = execution.pair, dict[Side, str]()
    for side in SIDES:
        flow = pair.flows[side]
        maker = flow.makers.get(flow.nodes[pair.blocks[number].of(side)[0]].reads[at].value)
        if maker is not None and not pair.blocks[pair.home[side][maker]].paired:
            call = flow.nodes[maker].call
            found[side] = f"{call.name}{f' at {Path(call.line).name}' if call.line else ''}"
    return found


# Layouts in words.


def in_words(lies: LaidOut, *, start: bool | None = None) -> str:
    """How a tensor lies; `start` says whether to say where it begins, None where that is off a boundary."""
    said = f"{look_at(lies)} {_tuple(lies.stride)}"
    if lies.start if start is None else start:
        off = f"{lies.start} bytes off" if lies.start else "at"
        return f"{said}, beginning {off} a 64-byte boundary"
    return said


def looks_of(arguments: Sequence[RelaidArgument]) -> tuple[str, ...]:
    """What is alike in all places where arguments lie so: `transposed against contiguous`."""
    found = []
    for one in arguments:
        what = " against ".join(look_at(one.lies[side]) for side in SIDES)
        same = one.lies["a"].stride == one.lies["b"].stride
        found.append("beginning elsewhere against a 64-byte boundary" if same else what)
    return tuple(sorted(set(found)))


def both_in_words(argument: RelaidArgument, labels: Mapping[Side, str]) -> str:
    """An argument with both of its layouts, and what has made them."""
    begins = argument.lies["a"].start != argument.lies["b"].start
    said = []
    for side in SIDES:
        where = f" by {argument.copied_by[side]}" if side in argument.copied_by else ""
        where += " within its generated code" if side in argument.within else ""
        said.append(f"{in_words(argument.lies[side], start=begins)}{where} in {labels[side]}")
    return f"argument {argument.number} ({argument.name}): {', '.join(said)}"


def _tuple(stride: Sequence[int]) -> str:
    return f"({', '.join(map(str, stride))}{',' if len(stride) == 1 else ''})"


CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""By the number of dimensions the order in which they lie, from the slowest to the fastest."""


def look_at(lies: LaidOut) -> str:
    """What people call a layout."""
    size, stride, dims = lies.size, lies.stride, len(lies.size)
    if any(not step and n > 1 for n, step in zip(size, stride, strict=True)):
        return "expanded"
    # Of a single channel, or a single pixel, both names fit: then the strides of dimensions without a step tell.
    if dims in CHANNELS_LAST and 1 in size and tuple(stride) == _strides(size, CHANNELS_LAST[dims]):
        return "channels last" if tuple(stride) != _strides(size, range(dims)) else "contiguous"
    if _is_dense(size, stride, range(dims)):
        return "contiguous"
    if dims in CHANNELS_LAST and _is_dense(size, stride, CHANNELS_LAST[dims]):
        return "channels last"
    if dims >= 2 and _is_dense(size, stride, (*range(dims - 2), dims - 1, dims - 2)):
        return "transposed"
    if _is_dense(size, stride, sorted(range(dims), key=lambda at: (-stride[at], at))):
        return "permuted"
    return "with gaps"


def _strides(size: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Those of elements that lie side by side, the dimensions in this order."""
    steps = {at: math.prod(max(1, size[one]) for one in order[place + 1 :]) for place, at in enumerate(order)}
    return tuple(steps[at] for at in range(len(size)))


def _is_dense(size: Sequence[int], stride: Sequence[int], order: Sequence[int]) -> bool:
    """Whether the elements lie side by side, the dimensions in this order; one of a single element has no step."""
    wanted = _strides(size, order)
    return 0 in size or all(n == 1 or own == step for n, own, step in zip(size, stride, wanted, strict=True))

"""The test of an op whose arguments the sides lay out differently: swap only the layouts, and compare the bits.

K are the kernels of both sides, x the values and L each side's layout of them:

    K_a(x laid out as L_b) == K_b(x as L_b)    swapped in: the layout alone produces side b's bits
    K_b(x laid out as L_a) == K_a(x as L_a)    swapped out: without side b's layout, the bits are side a's
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from ...tape.replaying.laid_out import LaidOut, relaid
from ...tape.replaying.replay import is_same
from ...tape.tape import Call, View, leaves
from ...torch_private.operators import arguments_of
from ..align.storage_flow import SIDES, Side, other
from .hybrid import HybridExecution, prepared, storages_read
from .layout_words import RelaidArgument
from .prepared_call import PreparedCall
from .step_memory import Memory
from .verification import SideKernels

Effect = Literal["layout", "kernel in a", "kernel in b", "kernel"]
"""The cause of the different bits: the layout alone, kernels that differ on one side's layout only, or kernels that
differ on both layouts."""

Layouts = Mapping[Side, Sequence[LaidOut]]
"""By side, the layouts of the tensors that the side's call takes."""


@dataclass(frozen=True, slots=True)
class SwappedLayout:
    """The effect of swapping layouts, and the arguments whose layouts matter."""

    effect: Effect
    arguments: tuple[RelaidArgument, ...]


def swapped_layout(execution: HybridExecution, number: int, before: Memory) -> SwappedLayout | None:
    """Swap the layouts of the inputs of both sides' calls in a pair; `before` is the memory at the start of the block.

    Return None if the inputs differ in value, have the same layouts or share written memory, or if the results are
    equal. Raises whatever an op raises.
    """
    calls = {side: _prepared_call(execution, number, before, side) for side in SIDES}
    tensors_a, tensors_b = calls["a"].tensors, calls["b"].tensors
    same_values = len(tensors_a) == len(tensors_b) and all(map(is_same, tensors_a, tensors_b))
    if not same_values or list(calls["a"].keywords) != list(calls["b"].keywords):
        return None
    if any(map(_shares_written_memory, calls.values())):
        return None
    recorded = {side: list(map(LaidOut.of, calls[side].tensors)) for side in SIDES}
    # Generated code may copy its inputs into a different layout before it calls the op.
    from_code = {side: _layouts_of_code(execution, side, calls[side]) for side in SIDES}
    laid_out_by_code = {side: code_layouts for side, code_layouts in from_code.items() if code_layouts is not None}
    layouts = {**recorded, **laid_out_by_code}
    differ = [at for at, (a, b) in enumerate(zip(layouts["a"], layouts["b"], strict=True)) if a != b]
    if not differ:
        return None if recorded["a"] == recorded["b"] else SwappedLayout("kernel", ())
    swap = _Swap(execution, calls, layouts, laid_out_by_code)
    if _equal(swap.own_results["a"], swap.own_results["b"]):
        return None
    effect, chosen = swap.effect(), differ
    if effect == "layout":
        # An argument matters only if the layouts of the other arguments do not explain the bits.
        for dropped in differ:
            fewer = [place for place in chosen if place != dropped]
            if fewer and swap.is_of_layout(fewer):
                chosen = fewer
    places = _places(calls["a"].node.call, calls["a"].node.execution.operation)
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


def _prepared_call(execution: HybridExecution, number: int, before: Memory, side: Side) -> PreparedCall:
    """Return a side's call of a block, on the values in the memory."""
    pair, memory = execution.pair, before.fork()
    node_number = pair.blocks[number].of(side)[0]
    node = pair.flows[side].nodes[node_number]
    storages = storages_read(node, side, memory, execution.instead(side, number)[node_number])
    return prepared(node_number, node, side, memory, storages)


def _layouts_of_code(execution: HybridExecution, side: Side, call: PreparedCall) -> list[LaidOut] | None:
    """Return the layouts of the inputs with which a side's compiled code called the op; None if they are unknown."""
    kernels = execution.kernels[side]
    layouts = kernels.called(call) if isinstance(kernels, SideKernels) else None
    return layouts if layouts is not None and len(layouts) == len(call.tensors) else None


class _Swap:
    """The execution of both sides' calls on the other side's layouts.

    On the sides in `laid_out_by_code`, compiled code lays out the arguments itself before it calls the op, so the
    layouts of these sides cannot be swapped.
    """

    def __init__(
        self,
        execution: HybridExecution,
        calls: Mapping[Side, PreparedCall],
        layouts: Layouts,
        laid_out_by_code: Collection[Side],
    ) -> None:
        self._kernels = execution.kernels
        self._calls = calls
        self._layouts = layouts
        self._laid_out_by_code = laid_out_by_code
        readers, slots = execution.pair.readers, execution.pair.flows["a"].tape.slots
        read = {
            place for side in SIDES for place, use in enumerate(calls[side].node.made) if use.value in readers[side]
        }
        # The results that something reads, each with the device on which it is compared
        self._compared = {place: slots[calls["a"].node.made[place].value.slot].device for place in sorted(read)}
        self.own_results = {side: self._results(side, list(map(LaidOut.of, calls[side].tensors))) for side in SIDES}

    def _results(self, side: Side, layouts: Sequence[LaidOut]) -> list[torch.Tensor]:
        """Return the results of a side's kernel on tensors in new memory with these layouts."""
        remaining = iter(layouts)
        call = self._calls[side].with_tensors(lambda tensor: relaid(tensor, next(remaining)))
        with torch.set_grad_enabled(call.node.call.grad):
            results = call.results(self._kernels[side].execute(call))
        return [results[place].to(device, copy=True) for place, device in self._compared.items()]

    def effect(self) -> Effect:
        """Return the cause of the different bits."""
        if self.is_of_layout(range(len(self._layouts["a"]))):
            return "layout"
        if self._laid_out_by_code:
            return "kernel"
        if _equal(self._results("b", self._layouts["a"]), self.own_results["a"]):
            return "kernel in b"
        return "kernel in a" if _equal(self._results("a", self._layouts["b"]), self.own_results["b"]) else "kernel"

    def is_of_layout(self, swapped: Collection[int]) -> bool:
        """Check whether each side's kernel computes the other side's bits if the `swapped` arguments have the other
        side's layouts."""
        for side in SIDES:
            pairs = enumerate(zip(self._layouts[side], self._layouts[other(side)], strict=True))
            mixed = [far if place in swapped else own for place, (own, far) in pairs]
            if side not in self._laid_out_by_code and not _equal(
                self._results(side, mixed), self.own_results[other(side)]
            ):
                return False
        return len(self._laid_out_by_code) < len(SIDES)


def _shares_written_memory(call: PreparedCall) -> bool:
    """Check whether a call writes memory that another of its arguments also uses. Copies would not share the memory."""
    slots = [use.value.slot for use in call.node.reads]
    return any(slots.count(written.slot) > 1 for written in call.node.execution.written_views())


def _equal(results: Sequence[torch.Tensor], other_results: Sequence[torch.Tensor]) -> bool:
    return all(map(is_same, results, other_results))


def _places(call: Call, operation: Any) -> list[tuple[int, str]]:
    """Return, for each view of a call, the number and the name of its argument."""
    names = [argument.name for argument in arguments_of(operation)]
    values = [*zip(names, call.arguments, strict=False), *call.keywords.items()]
    numbered: list[tuple[int, str]] = []
    for name, value in values:
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

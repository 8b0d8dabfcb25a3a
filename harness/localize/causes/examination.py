"""The examination of the blocks in which two tapes may differ.

Both sides' versions of a block are executed on side b's values. This shows which blocks compute different bits, and
measures each side's error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from ...tape.replaying.in_double import exact_values
from ...tape.replaying.replay import is_same, set_apart
from ...tape.tape import Tape, Watched, in_words
from ..align.argument_differences import LAYOUT, PART
from ..align.storage_flow import SIDES, FlowValue, Side, StorageFlow, Use
from ..errors.local_error import ExactResults, LocalError, exact_block
from ..errors.result_distances import is_single, largest_distance
from ..errors.sum_lengths import terms_added
from ..execute.hybrid import Hybrid, HybridExecution, Instead, storage_read
from ..execute.layout_words import RelaidArgument, looks_of
from ..execute.layouts import SwappedLayout, swapped_layout
from ..execute.step_memory import Memory, Unbound
from ..execute.tape_pair import TapePair
from ..execute.unwritten_results import Results, without_unwritten
from .matching_results import in_matching_order
from .selections import names_other_elements
from .suspects import CASTS, Suspect

ALONE = "its results have no counterpart"


# One block as a tape: its calls, on the inputs that the block had


def slice_of(
    flow: StorageFlow,
    side: Side,
    nodes: Sequence[int],
    memory: Memory,
    outputs: Sequence[Use],
    instead: Instead,
) -> Tape:
    """Return the nodes as a tape whose inputs are the earlier values that they read.

    The tape's watched values are the `outputs`, named by their order. `instead` maps slots to the other side's views
    that a paired call reads. `memory` is the memory before the nodes. Raises Unbound if the memory lacks a value that
    the nodes read.
    """
    made: set[FlowValue] = set()
    inputs: dict[int, torch.Tensor] = {}
    for number in nodes:
        node = flow.nodes[number]
        for use in node.reads:
            if use.value not in made and use.value.slot not in inputs:
                far = instead.get(use.value.slot)
                storage = storage_read(memory, side, use, far, node)
                whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
                inputs[use.value.slot] = whole.set_(storage, 0, (storage.nbytes(),), (1,)).clone()
        made |= {use.value for use in node.made}
    calls = tuple(flow.nodes[number].call for number in nodes)
    watched = tuple(
        Watched(len(calls), f"output {number}", use.view, torch.empty(0)) for number, use in enumerate(outputs)
    )
    return Tape(flow.tape.step, flow.tape.slots, inputs, calls, watched)


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of testing a block.

    differs: True if the sides compute different bits; None if the block cannot be tested alone, because its results
        have no counterpart or because it fails on the other side's values.
    why: the reason for None.
    errors: each side's error against double precision.
    largest: the largest distance between the two sides' versions of a result, as a share of its size.
    roundings: the same distance, in roundings of the results' precision.
    slices: each side's calls and inputs, if they were requested.
    relaid: the arguments whose layout causes the different bits, alone or together with the kernel.
    terms: the largest number of terms in the sum for one element of a result, 0 if unknown. It follows from the op. For
        a block of kind `layout`, it is at least the number of elements of the largest `relaid` argument, divided by
        that of the smallest result.
    elsewhere: True if the op returns positions of elements, and the two sides' positions are those of different
        elements.
    once: True for an elementwise op that computes in float32 and rounds its results to 16 bits once.
    meant: for a block of kind `arguments`, the distance between the two sides' results in exact arithmetic on the same
        inputs, as a multiple of the error that rounding causes in them.
    single: True if every result that differs has a single element.
    """

    suspect: Suspect
    differs: bool | None
    why: str = ""
    errors: Mapping[Side, LocalError] | None = None
    largest: float = 0.0
    roundings: float = 0.0
    slices: Mapping[Side, Tape] | None = None
    relaid: tuple[RelaidArgument, ...] = ()
    terms: int = 0
    elsewhere: bool = False
    once: bool = False
    meant: float = 0.0
    single: bool = False

    @property
    def is_entangled(self) -> bool:
        """True if the block cannot be executed without the blocks that read its results."""
        return self.differs is None and self.why != ALONE


def flagged(examined: Mapping[int, Examined], blocks: Iterable[int]) -> list[int]:
    """Return those of these blocks, in order, that differ or cannot be shown to be equal."""
    return [number for number in sorted(blocks) if number in examined and examined[number].differs is not False]


def examine(pair: TapePair, suspects_by_block: Mapping[int, Suspect], *, errors: bool = True) -> dict[int, Examined]:
    """Execute side b block by block, and side a's version of every suspect block on b's values.

    Without `errors` nothing is computed in double.
    """
    with set_apart(pair.devices()):
        execution = HybridExecution(pair, Hybrid("b"))
        return {
            number: examined_block(execution, suspects_by_block[number], before, kept=False, errors=errors)
            for number, before in execution.stops(suspects_by_block)
        }


def examined_block(
    execution: HybridExecution, suspect: Suspect, before: Memory, *, kept: bool, errors: bool
) -> Examined:
    """Test a block after its execution on side b; `before` is the memory at its start."""
    pair, number = execution.pair, suspect.block
    compared = compared_results(pair, number)
    if not compared:
        return Examined(suspect, None, ALONE)
    try:
        results = _results(execution, number, before, compared)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not its own
        return Examined(suspect, None, in_words(error))
    if all(is_same(a, b.to(a.dtype)) for a, b in zip(results["a"], results["b"], strict=True)):
        # Results that only one side has are not compared. If that hides a cause, `localize_step` treats every block as
        # one that may differ.
        return Examined(suspect, False)
    if not pair.blocks[number].is_pair:
        compared, results = in_matching_order(pair, compared, results)
    compared, results = without_unwritten(execution, number, before, compared, results)
    if not compared:
        return Examined(suspect, False)
    slices = _slices(execution, number, before, compared)
    suspect, relaid_arguments = _by_layout(execution, suspect, before)
    terms = _terms_of_ops(pair, number)
    if suspect.kind == "layout":
        elements = max((math.prod(argument.lies["a"].size) for argument in relaid_arguments), default=0)
        fewest = min((value.numel() for value in results["b"] if value.is_floating_point()), default=1)
        terms = max(terms, elements // max(1, fewest))
    if suspect.kind == "structure" and pair.all_names(number) <= CASTS:
        # If only one side has a cast, the cast rounds that side's results: compare both in the wider of their dtypes.
        widest = [torch.promote_types(a.dtype, b.dtype) for a, b in zip(results["a"], results["b"], strict=True)]
        results = {side: [value.to(wide) for value, wide in zip(results[side], widest, strict=True)] for side in SIDES}
    exact = _exactly(slices) if errors else None
    pairs = list(zip(results["a"], results["b"], strict=True))
    largest, roundings = largest_distance(pairs)
    elsewhere = False
    with suppress(Exception):  # an op may raise anything on values that are not its own
        elsewhere = "a" in slices and names_other_elements(slices["a"], results["a"], results["b"])
    return Examined(
        suspect,
        differs=True,
        errors=None if exact is None else _errors(exact[1], results),
        largest=largest,
        roundings=roundings,
        slices=slices if kept else None,
        relaid=relaid_arguments,
        terms=terms,
        elsewhere=elsewhere,
        once=_is_rounded_once(pair, number, results),
        meant=_apart_exactly(exact, slices, results["a"]) if suspect.kind == "arguments" else 0.0,
        single=is_single(pairs),
    )


def _results(execution: HybridExecution, number: int, before: Memory, compared: Sequence[tuple[Use, Use]]) -> Results:
    """Execute side a's version of a block on side b's values, and return both sides' results."""
    memory_a = before.fork()
    execution.run_as("a", number, memory_a)
    results_a = [memory_a.tensor("a", use).clone() for use, _ in compared]
    results_b = [execution.memory.tensor("b", use).clone() for _, use in compared]
    return {"a": results_a, "b": [b.to(a.device) for a, b in zip(results_a, results_b, strict=True)]}


def _slices(
    execution: HybridExecution, number: int, before: Memory, compared: Sequence[tuple[Use, Use]]
) -> dict[Side, Tape]:
    """Return each side's calls of a block as a tape, if the memory has all values that they read."""
    slices: dict[Side, Tape] = {}
    block = execution.pair.blocks[number]
    for place, side in enumerate(SIDES):
        outputs = [uses[place] for uses in compared]
        nodes = block.of(side)
        replacements = execution.instead(side, number).values()
        instead = {slot: views for replacement in replacements for slot, views in replacement.items()}
        with suppress(Unbound):
            slices[side] = slice_of(execution.pair.flows[side], side, nodes, before.fork(), outputs, instead)
    return slices


def _is_rounded_once(pair: TapePair, number: int, results: Results) -> bool:
    """Check whether a block is an elementwise op with results of 16 bits."""
    operation = pair.nodes(number, "a")[0].execution.operation if pair.blocks[number].is_pair else None
    is_pointwise = torch.Tag.pointwise in getattr(operation, "tags", ())
    return is_pointwise and all(
        value.dtype in (torch.bfloat16, torch.float16) for value in (*results["a"], *results["b"])
    )


def _terms_of_ops(pair: TapePair, number: int) -> int:
    lengths = (terms_added(node.call.name, [use.view.size for use in node.reads]) for node in pair.all_nodes(number))
    return max(lengths, default=0)


def _by_layout(
    execution: HybridExecution, suspect: Suspect, before: Memory
) -> tuple[Suspect, tuple[RelaidArgument, ...]]:
    """Classify a block that computes different bits and whose arguments have different layouts.

    The reason is the layout if the layout alone causes the different bits, else the kernel for that layout.
    """
    swapped: SwappedLayout | None = None
    if execution.pair.blocks[suspect.block].is_pair and {LAYOUT, PART}.issuperset(suspect.reasons):
        with suppress(Exception):  # an op may raise anything on a layout that is not its own
            swapped = swapped_layout(execution, suspect.block, before)
    if swapped is None:
        return suspect, ()
    looks = looks_of(swapped.arguments)
    match swapped.effect:
        case "layout":
            return replace(suspect, kind="layout", reasons=looks), swapped.arguments
        case "kernel":
            return replace(suspect, kind="kernel", reasons=(LAYOUT,)), ()
        case _:
            layout_side = "the reference" if swapped.effect == "kernel in a" else "the other mode"
            reasons = (f"the kernels compute different bits only in the layout of {layout_side}", *looks)
            return replace(suspect, kind="kernel", reasons=reasons), swapped.arguments


def compared_results(pair: TapePair, number: int) -> list[tuple[Use, Use]]:
    """Return the pairs of linked values that either side makes in the block and that both sides have after it."""
    results: dict[tuple[FlowValue, FlowValue], tuple[Use, Use]] = {}
    for side in SIDES:
        for use in (use for node in pair.nodes(number, side) for use in node.made):
            uses = pair.counterparts(side, use)
            if uses is None or not pair.readers[side].get(use.value, set()) - {number}:
                continue
            a, b = uses
            # both exist at the end of the block
            if pair.maker("a", a.value) <= number and pair.maker("b", b.value) <= number:
                results[a.value, b.value] = uses
    return list(results.values())


def _exactly(slices: Mapping[Side, Tape]) -> tuple[Side, ExactResults] | None:
    """Compute side a's calls in double, or side b's if side a's fail or have no form in double."""
    found: tuple[Side, ExactResults] | None = None
    for side in SIDES:
        if side in slices and slices[side].calls and (found is None or not found[1].is_exact):
            with suppress(Exception):  # an op may raise anything on doubles
                exact = exact_block(
                    slices[side], [slices[executed_side] for executed_side in SIDES if executed_side in slices]
                )
                found = (side, exact) if found is None or exact.is_exact else found
    return found


def _apart_exactly(
    exact: tuple[Side, ExactResults] | None, slices: Mapping[Side, Tape], results_a: Sequence[torch.Tensor]
) -> float:
    """Return the distance between the two versions of a block, both computed in double, so that rounding plays no part.

    It is the largest distance between two versions of a result, divided by the error that rounding causes: rounding of
    the block's inputs, and of the result to side a's precision. Return 0 if it is not known.
    """
    distances = [0.0]
    if exact is not None and exact[0] == "a" and exact[1].is_exact:
        with suppress(Exception):  # an op may raise anything on doubles
            values_b, not_exact = exact_values(slices["b"])
            for number, recorded in enumerate(results_a if not not_exact else ()):
                name = f"output {number}"
                a, b = exact[1].values[name], values_b[name]
                if recorded.is_floating_point() and a.shape == b.shape and bool(a.any()):
                    distances.append(exact[1].distance(name, b, recorded.dtype))
    return max(distances)


def _errors(exact: ExactResults, results: Results) -> dict[Side, LocalError] | None:
    """Return each side's error against the exact results."""
    errors = {side: exact.error(results[side]) for side in SIDES}
    return {side: error for side, error in errors.items() if error is not None} or None

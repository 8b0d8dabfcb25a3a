"""The localization of one step: from two tapes to the causes of their difference, each with its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..drift.step_noise import Noise
from ..records.results.culprit import AGAIN
from ..tape.tape import Tape
from .align.op_units import op_name
from .align.storage_flow import SIDES, Side, Use, flow_of
from .causes.batch_difference import follow_batch, with_batch
from .causes.batch_words import inputs_in_words
from .causes.choices import with_choices_of_reference, with_decisions
from .causes.examination import Examined, examine
from .causes.found_culprits import Describer, kernel_of, place_of
from .causes.hybrid_tests import Drift, HybridTests, Infeasible, Scorer
from .causes.left_over import left_over
from .causes.localized_step import LocalizedStep, UnprovenCauses
from .causes.proofs import prove
from .causes.same_number import of_one_number
from .causes.setting_causes import with_settings
from .causes.suspects import CASTS, UNROUNDED, Suspect, suspects
from .causes.swap_sites import Cause, SwapSite, causes_of, differing_inputs, sites_of
from .causes.undoing_causes import with_undone_together
from .execute.hybrid import Hybrid, TapePair, Values, execute, paired
from .execute.layout_words import both_in_words, looks_of
from .execute.prepared_call import Kernels
from .execute.verification import Digests, Found, verify
from .execute.worker_calls import WorkerCalls


def taken_apart(tests: HybridTests, examined: Mapping[int, Examined], sites: Sequence[SwapSite]) -> list[SwapSite]:
    """Split each site that can be split: into single kernels, and one site of all other blocks.

    Joining blocks (see `swap_sites`) is a precaution: a block that only moves data repeats the bits of its inputs, and
    may no longer do so once it alone is the other side's. But if several kernels differ, joining them hides which one
    matters.
    """
    pair, split_sites = tests.pair, list[SwapSite]()
    for site in sites:
        differing = [
            number for number in sorted(site.blocks) if number in examined and examined[number].differs is not False
        ]
        # blocks of one op on both sides, for which the examination found other bits
        kernels = [
            number
            for number in differing
            if examined[number].differs
            and examined[number].suspect.kind in ("kernel", "layout")
            and pair.blocks[number].paired
        ]
        others = [number for number in differing if number not in kernels]
        rest_site = [SwapSite(site.blocks.difference(kernels), others[0])] if others else []
        parts = [*(SwapSite(frozenset([number]), number) for number in kernels), *rest_site]
        # The site's blocks read results of a repeated execution: compared with the first execution they seem wrong.
        is_repeated = any(why.startswith(AGAIN) for number in differing for why in examined[number].suspect.reasons)
        if len(parts) < 2 or is_repeated:
            split_sites.append(site)
            continue
        # Together the parts must make and remove exactly the site's drift, and each must be executable alone.
        causes, whole_causes = causes_of(pair, examined, parts), causes_of(pair, examined, [site])
        try:
            for cause in causes:
                # an infeasible part mostly fails when it is swapped out
                tests.swapped_out([cause])
                tests.swapped_in([cause])
            out = tests.swapped_out(causes) == tests.swapped_out(whole_causes)
            split_sites += parts if out and tests.swapped_in(causes) == tests.swapped_in(whole_causes) else [site]
        except Infeasible:
            split_sites.append(site)
    return sorted(split_sites, key=lambda site: site.lead)


def with_layouts(causes: Sequence[Cause], examined: Mapping[int, Examined], labels: Mapping[Side, str]) -> list[Cause]:
    """Return the causes; where layouts matter, the reasons describe those at the first site, with the modes' labels."""
    described = []
    for cause in causes:
        arguments = examined[cause.sites[0].lead].relaid if cause.sites else ()
        looks = looks_of(arguments)
        reasons = [reason for reason in cause.reasons if reason not in looks]
        described.append(
            replace(cause, reasons=(*reasons, *(both_in_words(argument, labels) for argument in arguments)))
        )
    return described


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One side of a step.

    tape: the side's tape.
    label: its name in texts.
    digests: waits for the worker's digests of the calls' real results, and raises the worker's error.
    calls: executes calls in the worker, if there is one.
    notes: names the parts of the step that the worker could not observe.
    spec: the specification of its mode.
    """

    tape: Tape
    label: str
    digests: Callable[[], Digests] | None = None
    calls: WorkerCalls | None = None
    notes: Sequence[str] = ()
    spec: str = ""


def localize_step(
    sides: Mapping[Side, Held],
    noise: Noise,
    threshold: float,
    say: Say,
    unproven: Callable[[UnprovenCauses], None] = lambda causes: None,
    own: Collection[str] | None = None,
) -> LocalizedStep:
    """Align both tapes, find the blocks that differ, and prove which of them make the drift.

    `unproven` receives the causes before their proofs, which take a while. If `own` is specified, the causes of the
    batch's difference are searched for as well: `own` are the arguments of the batch that the training makes itself.

    Raises NotReplayable if a tape cannot be executed.
    """
    pair = paired(flow_of(sides["a"].tape), flow_of(sides["b"].tape), own_batch=own is not None)
    labels: dict[Side, str] = {side: sides[side].label for side in SIDES}
    counts = " and ".join(f"{len(pair.flows[side].nodes)} of {labels[side]}" for side in SIDES)
    paired_count = sum(block.paired for block in pair.blocks)
    say(f"{counts} calls aligned: {paired_count} of {len(pair.blocks)} blocks are the same op")
    # From now on each side is executed by the kernels that it really has.
    # Side b first: the results of a compiled step are known at once, while those of an eager one take a while.
    verified = {side: _verified(pair, side, sides[side]) for side in reversed(SIDES)}
    kernels: dict[Side, Found] = {side: verified[side][0] for side in SIDES}
    pair = replace(pair, kernels={side: verified[side][1] for side in SIDES})
    suspected = suspects(pair)
    for side in SIDES:
        for number in {pair.home[side][node] for node in kernels[side].special}:
            suspected.setdefault(number, Suspect(number, "kernel", ()))
        for node in kernels[side].astray:
            number = pair.home[side][node]
            suspected[number] = Suspect(number, "kernel", _astray(pair, side, node, kernels[side]))
        for node in sorted(kernels[side].in_context - kernels[side].astray):
            suspect = suspected[pair.home[side][node]]
            reasons = dict.fromkeys((*suspect.reasons, *_unrounded(pair, side, node)))
            suspected[suspect.block] = replace(suspect, reasons=tuple(reasons))
    examined = examine(pair, suspected)
    scorer = Scorer(sides["a"].tape.expected(), noise)
    tests = HybridTests(pair, scorer)
    overridden = {
        pair.home[side][node]
        for side in SIDES
        for node in kernels[side].foreign
        if pair.flows[side].nodes[node].call.compiled is None
    }
    sites = sites_of(pair, examined, overridden)
    if not _is_complete(tests, _causes(pair, examined, sites, labels)):
        # A block may be equal on one side's values by chance, and differ on the other side's.
        doubted = {number: replace(block, differs=block.differs or None) for number, block in examined.items()}
        doubted_sites = sites_of(pair, doubted, overridden)
        if _is_complete(tests, _causes(pair, doubted, doubted_sites, labels)):
            sites, examined = doubted_sites, doubted
    sites = taken_apart(tests, examined, sites)
    with_reasons = with_settings(pair, examined, _causes(pair, examined, sites, labels), sides)
    decided = with_decisions(pair, with_reasons, labels)
    causes = with_layouts(with_undone_together(tests, decided), examined, labels)
    differing = {number for number, block in examined.items() if block.differs is not False}
    say(_counted(len(differing), len(pair.blocks), causes))
    unproven(UnprovenCauses(pair, kernels, examined, [place_of(pair, examined, cause) for cause in causes]))
    values = execute(pair, Hybrid("b"))
    tests.measured(Hybrid("b"), values)
    from_itself: dict[Side, Drift] = {"b": _from_itself(sides["b"], values, noise)}
    del values  # a copy of all results of the step
    proofs = prove(tests, causes, threshold)
    beyond = proofs.whole.score > threshold or proofs.whole.discrete
    chosen = with_choices_of_reference(pair, scorer, differing) if beyond else None
    from_itself["a"] = _from_itself(sides["a"], execute(pair, Hybrid("a")), noise)
    controls = {side: drift.is_none for side, drift in from_itself.items()}

    def kernel(side: Side, numbers: Sequence[int]) -> str | None:
        held_side = sides[side]
        nodes = [(number, pair.flows[side].nodes[number]) for number in numbers]
        return kernel_of(held_side.spec, nodes, kernels[side], checked=held_side.digests is not None or controls[side])

    described = Describer(pair, examined, proofs, threshold, kernel).culprits()
    remaining = left_over(tests, described)
    notes = _notes(controls, kernels, sides)
    culprits = [culprit for _, culprit in described]
    if own is not None:
        followed = follow_batch(pair, examined, causes, labels, own)
        places = [place_of(pair, examined, followed_cause.cause) for followed_cause in followed.causes]
        culprits = with_batch(culprits, places, followed, labels["a"])
        notes += followed.notes
    scores = {side: drift.distance for side, drift in from_itself.items()}
    return LocalizedStep(pair, controls, scores, kernels, examined, causes, proofs, culprits, chosen, remaining, notes)


def followed_preparation(sides: Mapping[Side, Held], own: Collection[str]) -> dict[str, object]:
    """Find the causes of a difference in the first batch or the initial values of two trainings.

    They are found in the tapes of the scripts before their first step, which this process's kernels execute. Return
    `culprits` and `notes`. Raises NotReplayable if a tape cannot be executed.
    """
    pair = paired(flow_of(sides["a"].tape), flow_of(sides["b"].tape))
    labels: dict[Side, str] = {side: sides[side].label for side in SIDES}
    examined = examine(pair, suspects(pair), errors=False)
    followed = follow_batch(
        pair, examined, _causes(pair, examined, sites_of(pair, examined), labels), labels, own, "script"
    )
    places = [place_of(pair, examined, followed_cause.cause) for followed_cause in followed.causes]
    return {"culprits": with_batch([], places, followed, labels["a"]), "notes": followed.notes}


def _astray(pair: TapePair, side: Side, number: int, found: Found) -> tuple[str, ...]:
    """Return the reasons why a compiled node is at fault.

    Its values in the graph differ from those that it computes alone on the inputs of the tape.
    """
    flow = pair.flows[side]
    reason = "gives other values within its compiled graph than alone on the same inputs, beyond rounding"
    # An input may be wrong instead, if its bits are not known.
    makers = [flow.makers.get(use.value) for use in flow.nodes[number].reads]
    unread = dict.fromkeys(
        op_name(flow.nodes[maker]) for maker in makers if maker is not None and maker in found.unknown
    )
    if not unread:
        return (reason,)
    names = " and ".join(unread)
    return reason, f"or what {names} gives it there is wrong: reading that changes the results"


def _unrounded(pair: TapePair, side: Side, number: int) -> tuple[str, ...]:
    """Name the inputs of a compiled node that may have more digits than their dtype.

    Inductor rounds between ops only where it has to. A cast to that dtype is a rounding that the script requests.
    """
    flow = pair.flows[side]
    node = flow.nodes[number]
    digits = max((_digits(use) for use in node.made), default=0)
    makers = [
        flow.nodes[flow.makers[use.value]]
        for use in node.reads
        if 0 < _digits(use) < digits and use.value in flow.makers
    ]
    unrounded = [
        op_name(maker)
        for maker in makers
        if maker.call.compiled is not None
        and not (op_name(maker) in CASTS and max(map(_digits, maker.reads)) >= digits)
    ]
    return tuple(f"{UNROUNDED} {name} gives it" for name in dict.fromkeys(unrounded))


def _digits(use: Use) -> int:
    """Return the binary digits of a floating dtype, 0 for others."""
    dtype = use.view.dtype
    return 1 - math.frexp(torch.finfo(dtype).eps)[1] if dtype.is_floating_point else 0


def _verified(pair: TapePair, side: Side, held_side: Held) -> tuple[Found, Kernels]:
    if held_side.digests is None or held_side.calls is None:
        return Found(), pair.kernels[side]
    return verify(pair, side, held_side.digests(), held_side.calls)


def _from_itself(held_side: Held, values: Values, noise: Noise) -> Drift:
    """Return the drift of a side's values, computed by its own kernels, from those that its tape recorded."""
    return Scorer(held_side.tape.expected(), noise).drift(values)


def _causes(
    pair: TapePair, examined: Mapping[int, Examined], sites: Sequence[SwapSite], labels: Mapping[Side, str]
) -> list[Cause]:
    causes = of_one_number(pair, causes_of(pair, examined, sites))
    inputs = differing_inputs(pair)
    if not inputs:
        return causes
    nothing: dict[Side, tuple[str, ...]] = {"a": (), "b": ()}
    why = ("the step starts from other data", *inputs_in_words(pair, inputs, labels))
    return [Cause("setup", "data", nothing, why, (), tuple(inputs)), *causes]


def _counted(differing: int, blocks: int, causes: Sequence[Cause]) -> str:
    """Return `29 of 224 blocks compute other bits, from 7 causes`, without the causes that are inputs of the step."""
    count = sum(not cause.inputs for cause in causes)
    counted = [f"{count} cause{'s' if count != 1 else ''}"] if count or not causes else []
    counted += ["what the step starts from"] if count < len(causes) else []
    return f"{differing} of {blocks} blocks compute other bits, from {' and '.join(counted)}"


def _is_complete(tests: HybridTests, causes: list[Cause]) -> bool:
    """Check whether side b without these causes computes the values of side a, bit for bit."""
    try:
        return tests.swapped_out(causes).is_none
    except Infeasible:
        return False


def _notes(controls: Mapping[Side, bool], kernels: Mapping[Side, Found], sides: Mapping[Side, Held]) -> list[str]:
    notes = []
    labels = {side: sides[side].label for side in SIDES}
    for side in SIDES:
        notes += [f"{note}; its kernels are executed alone instead" for note in sides[side].notes]
        if not controls[side]:
            notes.append(f"the tape of {labels[side]}, executed by its own kernels, does not give its own bits again")
        if kernels[side].in_context:
            notes.append(
                f"{len(kernels[side].in_context)} calls of {labels[side]} give other bits alone "
                "than among their neighbours"
            )
    return notes

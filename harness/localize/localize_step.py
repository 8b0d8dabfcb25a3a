"""Localizes one step: from two tapes to the causes of their difference, each with its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..drift.step_noise import Noise
from ..records.culprit import AGAIN, Culprit
from ..records.localization_record import LeftOver
from ..tape.tape import Tape
from .batch_difference import follow_batch, with_batch
from .batch_words import inputs_in_words
from .choices import ChosenDrift, with_choices_of_reference, with_decisions
from .examination import Examined, examine
from .found_culprits import Describer, kernel_of, place_of
from .held_run import WorkerCalls
from .hybrid import Kernels, Mixture, TapePair, Values, execute, paired
from .hybrid_tests import Drift, HybridTests, Infeasible, Scorer
from .layouts import both_in_words, looks_of
from .left_over import left_over
from .op_units import op_name
from .proofs import Proofs, prove
from .same_number import of_one_number
from .setting_causes import with_settings
from .storage_flow import SIDES, Side, Use, flow_of
from .suspects import CASTS, UNROUNDED, Suspect, suspects
from .swap_sites import Cause, SwapSite, causes_of, differing_inputs, sites_of
from .undoing_causes import with_undone_together
from .verification import Digests, Found, verify


def taken_apart(tests: HybridTests, examined: Mapping[int, Examined], sites: Sequence[SwapSite]) -> list[SwapSite]:
    """The sites, each that can be in parts: every kernel for itself, and what differs otherwise with what lies between.

    What joins blocks (see `swap_sites`) is caution: one that moves data gives the very bits of what it reads, and may
    not once only one of them is of the other side. Where several kernels are other ones, that hides which of them
    matters.
    """
    pair, found = tests.pair, list[SwapSite]()
    for site in sites:
        differing = [one for one in sorted(site.blocks) if one in examined and examined[one].differs is not False]
        # one op on both sides that was seen to compute other bits
        kernels = [
            one
            for one in differing
            if examined[one].differs and examined[one].suspect.kind in ("kernel", "layout") and pair.blocks[one].paired
        ]
        others = [one for one in differing if one not in kernels]
        rest = [SwapSite(site.blocks.difference(kernels), others[0])] if others else []
        parts = [*(SwapSite(frozenset([one]), one) for one in kernels), *rest]
        # What was executed again is read by all that go with it: held against the first execution they seem wrong.
        again = any(why.startswith(AGAIN) for one in differing for why in examined[one].suspect.reasons)
        if len(parts) < 2 or again:
            found.append(site)
            continue
        # The parts have to make and take away the very drift of the site together, and each must be possible alone.
        causes, whole = causes_of(pair, examined, parts), causes_of(pair, examined, [site])
        try:
            for cause in causes:
                # what cannot be mixed mostly cannot be taken out
                tests.swapped_out([cause])
                tests.swapped_in([cause])
            out = tests.swapped_out(causes) == tests.swapped_out(whole)
            found += parts if out and tests.swapped_in(causes) == tests.swapped_in(whole) else [site]
        except Infeasible:
            found.append(site)
    return sorted(found, key=lambda site: site.lead)


def with_layouts(causes: Sequence[Cause], examined: Mapping[int, Examined], labels: Mapping[Side, str]) -> list[Cause]:
    """The causes; where layouts matter the reasons name those of the first place, in the words of both modes."""
    found = []
    for cause in causes:
        arguments = examined[cause.sites[0].lead].relaid if cause.sites else ()
        looks = looks_of(arguments)
        said = [reason for reason in cause.reasons if reason not in looks]
        found.append(replace(cause, reasons=(*said, *(both_in_words(one, labels) for one in arguments))))
    return found


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class UnprovenCauses:
    """The causes of a step, as culprits of which nothing is proven yet, and what is known of their blocks."""

    pair: TapePair
    kernels: Mapping[Side, Found]
    examined: Mapping[int, Examined]
    culprits: Sequence[Culprit]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """One side of a step: its tape, its label, where its process is held what its calls really gave (waited for, and
    raises what went wrong there), the process and what could not be observed there, and its mode as it was given."""

    tape: Tape
    label: str
    digests: Callable[[], Digests] | None = None
    calls: WorkerCalls | None = None
    notes: Sequence[str] = ()
    spec: str = ""


@dataclass(slots=True, eq=False)
class LocalizedStep:
    """What was found in one step. `controls` says of each side whether its tape, executed here, gives its own
    values again. `control_scores` how far it is from them otherwise, as a multiple of the reference's rounding noise:
    infinity where whole numbers differ."""

    pair: TapePair
    controls: Mapping[Side, bool]
    control_scores: Mapping[Side, float]
    kernels: Mapping[Side, Found]
    examined: Mapping[int, Examined]
    causes: list[Cause]
    proofs: Proofs
    culprits: list[Culprit]
    chosen: ChosenDrift | None
    left: LeftOver
    notes: list[str] = field(default_factory=list)


def localize_step(
    sides: Mapping[Side, Held],
    noise: Noise,
    threshold: float,
    say: Say,
    unproven: Callable[[UnprovenCauses], None] = lambda causes: None,
    own: Collection[str] | None = None,
) -> LocalizedStep:
    """Align both tapes, find the blocks that differ, and prove which of them make the drift. `unproven` is told of the
    causes before their proofs, which take a while. With `own` what makes the batch differ is looked for, too: those are
    its arguments that the training makes itself.

    Raises NotReplayable where a tape cannot be executed.
    """
    pair = paired(flow_of(sides["a"].tape), flow_of(sides["b"].tape), own_batch=own is not None)
    labels: dict[Side, str] = {side: sides[side].label for side in SIDES}
    counts = " and ".join(f"{len(pair.flows[side].nodes)} of {labels[side]}" for side in SIDES)
    same = sum(block.paired for block in pair.blocks)
    say(f"{counts} calls aligned: {same} of {len(pair.blocks)} blocks are the same op")
    # From here on each side is executed by the kernels that it really has.
    # What a compiled step gave is known at once; an eager one is executed for it, which takes a while.
    verified = {side: _verified(pair, side, sides[side]) for side in reversed(SIDES)}
    kernels: dict[Side, Found] = {side: verified[side][0] for side in SIDES}
    pair = replace(pair, kernels={side: verified[side][1] for side in SIDES})
    found = suspects(pair)
    for side in SIDES:
        for number in {pair.home[side][node] for node in kernels[side].special}:
            found.setdefault(number, Suspect(number, "kernel", ()))
        for node in kernels[side].astray:
            number = pair.home[side][node]
            found[number] = Suspect(number, "kernel", _astray(pair, side, node, kernels[side]))
        for node in sorted(kernels[side].in_context - kernels[side].astray):
            one = found[pair.home[side][node]]
            reasons = dict.fromkeys((*one.reasons, *_unrounded(pair, side, node)))
            found[one.block] = replace(one, reasons=tuple(reasons))
    examined = examine(pair, found)
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
        # a block that is equal on one side's values by chance may not be on the other's
        doubted = {number: replace(one, differs=one.differs or None) for number, one in examined.items()}
        others = sites_of(pair, doubted, overridden)
        if _is_complete(tests, _causes(pair, doubted, others, labels)):
            sites, examined = others, doubted
    sites = taken_apart(tests, examined, sites)
    made = with_settings(pair, examined, _causes(pair, examined, sites, labels), sides)
    decided = with_decisions(pair, made, labels)
    causes = with_layouts(with_undone_together(tests, decided), examined, labels)
    differing = {number for number, one in examined.items() if one.differs is not False}
    say(_counted(len(differing), len(pair.blocks), causes))
    unproven(UnprovenCauses(pair, kernels, examined, [place_of(pair, examined, one) for one in causes]))
    values = execute(pair, Mixture("b"))
    tests.measured(Mixture("b"), values)
    again: dict[Side, Drift] = {"b": _from_itself(sides["b"], values, noise)}
    del values  # a copy of all that the step gave
    proofs = prove(tests, causes, threshold)
    beyond = proofs.whole.score > threshold or proofs.whole.discrete
    chosen = with_choices_of_reference(pair, scorer, differing) if beyond else None
    again["a"] = _from_itself(sides["a"], execute(pair, Mixture("a")), noise)
    controls = {side: one.is_none for side, one in again.items()}

    def kernel(side: Side, numbers: Sequence[int]) -> str | None:
        held = sides[side]
        nodes = [(number, pair.flows[side].nodes[number]) for number in numbers]
        return kernel_of(held.spec, nodes, kernels[side], checked=held.digests is not None or controls[side])

    told = Describer(pair, examined, proofs, threshold, kernel).culprits()
    left = left_over(tests, told)
    notes = _notes(controls, kernels, sides)
    culprits = [culprit for _, culprit in told]
    if own is not None:
        followed = follow_batch(pair, examined, causes, labels, own)
        places = [place_of(pair, examined, one.cause) for one in followed.causes]
        culprits = with_batch(culprits, places, followed, labels["a"])
        notes += followed.notes
    scores = {side: one.distance for side, one in again.items()}
    return LocalizedStep(pair, controls, scores, kernels, examined, causes, proofs, culprits, chosen, left, notes)


def followed_preparation(sides: Mapping[Side, Held], own: Collection[str]) -> dict[str, object]:
    """What makes the first batch or the initial values of two trainings others, from the tapes of what their scripts
    did before: `culprits` and `notes`. Both are executed by this process's kernels.

    Raises NotReplayable where a tape cannot be executed.
    """
    pair = paired(flow_of(sides["a"].tape), flow_of(sides["b"].tape))
    labels: dict[Side, str] = {side: sides[side].label for side in SIDES}
    examined = examine(pair, suspects(pair), errors=False)
    followed = follow_batch(
        pair, examined, _causes(pair, examined, sites_of(pair, examined), labels), labels, own, "script"
    )
    places = [place_of(pair, examined, one.cause) for one in followed.causes]
    return {"culprits": with_batch([], places, followed, labels["a"]), "notes": followed.notes}


def _astray(pair: TapePair, side: Side, number: int, found: Found) -> tuple[str, ...]:
    """Why a node is to blame that gives other values in its compiled graph than alone, on the inputs of the tape."""
    flow = pair.flows[side]
    reason = "gives other values within its compiled graph than alone on the same inputs, beyond rounding"
    # What it reads may be what is wrong, where no bits of that are known.
    makers = [flow.makers.get(use.value) for use in flow.nodes[number].reads]
    unread = dict.fromkeys(op_name(flow.nodes[one]) for one in makers if one is not None and one in found.unknown)
    if not unread:
        return (reason,)
    names = " and ".join(unread)
    return reason, f"or what {names} gives it there is wrong: reading that changes the results"


def _unrounded(pair: TapePair, side: Side, number: int) -> tuple[str, ...]:
    """Whether a compiled node may read more digits than the dtype of what it reads has: Inductor rounds between ops
    only where it has to. A cast to that dtype is a rounding that the script asks for."""
    flow = pair.flows[side]
    node = flow.nodes[number]
    digits = max((_digits(use) for use in node.made), default=0)
    makers = [
        flow.nodes[flow.makers[use.value]]
        for use in node.reads
        if 0 < _digits(use) < digits and use.value in flow.makers
    ]
    kept = [
        op_name(one)
        for one in makers
        if one.call.compiled is not None and not (op_name(one) in CASTS and max(map(_digits, one.reads)) >= digits)
    ]
    return tuple(f"{UNROUNDED} {name} gives it" for name in dict.fromkeys(kept))


def _digits(use: Use) -> int:
    """Binary digits of a floating dtype, 0 of others."""
    dtype = use.view.dtype
    return 1 - math.frexp(torch.finfo(dtype).eps)[1] if dtype.is_floating_point else 0


def _verified(pair: TapePair, side: Side, held: Held) -> tuple[Found, Kernels]:
    if held.digests is None or held.calls is None:
        return Found(), pair.kernels[side]
    return verify(pair, side, held.digests(), held.calls)


def _from_itself(held: Held, values: Values, noise: Noise) -> Drift:
    """How far these values, of a side's tape executed by its own kernels, are from those that it has recorded."""
    return Scorer(held.tape.expected(), noise).drift(values)


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
    """`29 of 224 blocks compute other bits, from 7 causes`, what the step starts from being none of them."""
    made = sum(not one.inputs for one in causes)
    found = [f"{made} cause{'s' if made != 1 else ''}"] if made or not causes else []
    found += ["what the step starts from"] if made < len(causes) else []
    return f"{differing} of {blocks} blocks compute other bits, from {' and '.join(found)}"


def _is_complete(tests: HybridTests, causes: list[Cause]) -> bool:
    """Whether side b without these causes is side a, bit for bit."""
    try:
        return tests.swapped_out(causes).is_none
    except Infeasible:
        return False


def _notes(controls: Mapping[Side, bool], kernels: Mapping[Side, Found], held: Mapping[Side, Held]) -> list[str]:
    found = []
    labels = {side: held[side].label for side in SIDES}
    for side in SIDES:
        found += [f"{note}; its kernels are executed alone instead" for note in held[side].notes]
        if not controls[side]:
            found.append(f"the tape of {labels[side]}, executed by its own kernels, does not give its own bits again")
        if kernels[side].in_context:
            found.append(
                f"{len(kernels[side].in_context)} calls of {labels[side]} give other bits alone "
                "than among their neighbours"
            )
    return found

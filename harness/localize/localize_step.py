"""The localization of one step: from two tapes to the causes of their difference, each with its proof."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ..drift.step_noise import Noise
from ..records.modes.mode_spec import parse_mode
from ..tape.replaying.settling import FAR
from .align.storage_flow import SIDES, Side, flow_of
from .causes.batch_words import inputs_in_words
from .causes.choices import with_choices_of_reference
from .causes.examination import Examined, examine, flagged
from .causes.found_culprits import Describer, place_of
from .causes.hybrid_tests import Drift, HybridTests, Infeasible, Scorer
from .causes.judged_alone import verdict_alone
from .causes.kernel_names import kernel_of
from .causes.kernel_suspects import with_kernels
from .causes.left_over import left_over
from .causes.localized_step import LocalizedStep, UnprovenCauses
from .causes.net_effect import NetEffect, net_effects
from .causes.proofs import is_beyond, prove
from .causes.script_branches import with_decisions
from .causes.site_causes import Cause, causes_of, differing_inputs, farthest_move, with_layouts
from .causes.split_sites import only_rounding, parts_of, split_sites
from .causes.suspects import suspects
from .causes.swap_sites import SwapSite, sites_of
from .execute.prepared_call import Kernels
from .execute.step_side import StepSide
from .execute.tape_pair import TapePair, paired
from .execute.unrepeatable_calls import UnrepeatableCalls
from .execute.verification import Found, verify
from .joint_causes.batch_difference import follow_batch, with_batch
from .joint_causes.inseparable_causes import with_inseparable
from .joint_causes.same_number import with_same_number_joined
from .joint_causes.setting_causes import with_settings
from .joint_causes.undoing_causes import with_undone_together

Say = Callable[[str], None]

MOST_MEASURED = 100
"""The largest number of causes whose effects are all measured. That takes a few executions of the step."""


def localize_step(
    sides: Mapping[Side, StepSide],
    noise: Noise,
    threshold: float,
    say: Say,
    unproven: Callable[[UnprovenCauses], None] = lambda causes: None,
    own: Collection[str] | None = None,
    deadline: float = math.inf,
) -> LocalizedStep:
    """Align both tapes, find the blocks that differ, and prove which of them cause the drift.

    `unproven` receives the causes before their proofs, which take a while. If `own` is not None, also find the causes
    of a difference in the batch. `own` names the arguments of the batch that the script computes itself. After the
    `deadline`, in seconds of the monotonic clock, causes that are not significant are no longer tested.

    Raises NotReplayable if a tape cannot be executed.
    """
    sources = {(mode.script, mode.git) for mode in (parse_mode(sides[side].spec) for side in SIDES if sides[side].spec)}
    flows = [flow_of(sides[side].tape) for side in SIDES]
    pair = paired(*flows, own_batch=own is not None, same_source=len(sources) < 2)
    labels: dict[Side, str] = {side: sides[side].label for side in SIDES}
    counts = " and ".join(f"{len(pair.flows[side].nodes)} calls of {labels[side]}" for side in SIDES)
    paired_count = sum(block.paired for block in pair.blocks)
    say(f"aligned {counts}: {paired_count} of {len(pair.blocks)} blocks are the same op on both sides")
    scorers: dict[Side, Scorer] = {side: Scorer(sides[side].tape.expected(), noise) for side in SIDES}
    tests = HybridTests(pair, scorers, deadline)
    kernels = _with_real_kernels(tests, sides)
    pair = tests.pair
    examined = examine(pair, with_kernels(pair, suspects(pair), kernels))
    examined, sites = _sites(tests, examined, kernels, labels)
    sites, effects = _split(tests, examined, sites, threshold)
    causes = with_settings(pair, examined, _causes(pair, examined, sites, labels), sides)
    causes = with_decisions(pair, causes, labels)
    causes = with_inseparable(tests, causes, lambda cause: farthest_move(examined, cause))
    from_itself: dict[Side, Drift] = {"b": tests.of_itself("b")}
    # Unless there are very many, effects are measured before the causes are tested: some need fewer tests then.
    is_measured = 1 < len(causes) <= MOST_MEASURED and is_beyond(tests.swapped_out([]), threshold)
    measured = causes if is_measured else []
    effects |= net_effects(pair, [cause for cause in measured if not effects.keys() >= {*cause.sites}])
    rounding = [cause.sites for cause in measured if verdict_alone(cause, examined, effects) == "rounding"]
    causes = with_undone_together(tests, causes, rounding)
    causes = with_layouts(causes, examined, labels)
    differing = set(flagged(examined, examined))
    say(_counted(len(differing), len(pair.blocks), causes))
    likely = [cause for cause in causes if cause.sites not in rounding] or causes
    unproven(UnprovenCauses(pair, kernels, examined, [place_of(pair, examined, cause) for cause in likely]))
    only_round = [cause for cause in causes if cause.sites in rounding]
    proofs = prove(tests, causes, threshold, lambda cause: farthest_move(examined, cause), only_round)
    chosen = with_choices_of_reference(pair, tests.scorer, differing) if is_beyond(proofs.whole, threshold) else None
    from_itself["a"] = tests.of_itself("a")
    # A call that does not repeat has one result in all hybrids, which may be that of the other side.
    controls = {
        side: drift.is_none or bool(kernels[side].unrepeatable and drift.distance <= FAR)
        for side, drift in from_itself.items()
    }

    def kernel(side: Side, numbers: Sequence[int]) -> str | None:
        nodes = [(number, pair.flows[side].nodes[number]) for number in numbers]
        checked = sides[side].digests is not None or controls[side]
        return kernel_of(sides[side].spec, nodes, kernels[side], checked=checked)

    measured_sites = {cause.sites for cause in measured}
    acting = [each.cause for each in (*proofs.significant, *proofs.others_with_effect)]
    effects |= net_effects(pair, [cause for cause in acting if cause.sites not in measured_sites])
    described = Describer(pair, examined, proofs, threshold, kernel, effects).culprits()
    remaining = left_over(tests, described)
    notes = _notes(controls, kernels, sides, proofs.untested)
    culprits = [culprit for _, culprit in described]
    if own is not None:
        followed = follow_batch(pair, examined, causes, labels, own)
        culprits = with_batch(pair, examined, culprits, followed, labels["a"])
        notes += followed.notes
    scores = {side: drift.distance for side, drift in from_itself.items()}
    return LocalizedStep(pair, controls, scores, kernels, examined, causes, proofs, culprits, chosen, remaining, notes)


def followed_preparation(sides: Mapping[Side, StepSide], own: Collection[str]) -> dict[str, object]:
    """Find the causes of a difference in the first batch or the initial values of two training runs.

    The tapes hold the ops that the scripts execute before their first step. This process's kernels execute these ops.
    Return `culprits` and `notes`. Raises NotReplayable if a tape cannot be executed.
    """
    pair = paired(flow_of(sides["a"].tape), flow_of(sides["b"].tape))
    labels: dict[Side, str] = {side: sides[side].label for side in SIDES}
    examined = examine(pair, suspects(pair), errors=False)
    causes = _causes(pair, examined, sites_of(pair, examined), labels)
    followed = follow_batch(pair, examined, causes, labels, own, "script")
    return {"culprits": with_batch(pair, examined, [], followed, labels["a"]), "notes": followed.notes}


def _with_real_kernels(tests: HybridTests, sides: Mapping[Side, StepSide]) -> dict[Side, Found]:
    """Give the pair of the tests the real kernels of each side, and return the nodes that differ from plain kernels.

    The tests take over the values of a side that has plain kernels alone: they would only execute it again.
    """
    pair = tests.pair
    found, kernels, once = dict[Side, Found](), dict[Side, Kernels](), UnrepeatableCalls()
    # Side b first: the results of a compiled step are known at once, while those of an eager step take a while.
    for side in reversed(SIDES):
        digests, calls = sides[side].digests, sides[side].calls
        if digests is None or calls is None:
            found[side], kernels[side] = Found(), pair.kernels[side]
            continue
        executed_digests, began = digests(), time.monotonic()
        found[side], kernels[side], values = verify(pair, side, executed_digests, calls, once)
        if values is not None:
            tests.verified(side, values, time.monotonic() - began)
    tests.pair = replace(pair, kernels=kernels)
    return found


def _sites(
    tests: HybridTests, examined: dict[int, Examined], kernels: Mapping[Side, Found], labels: Mapping[Side, str]
) -> tuple[dict[int, Examined], list[SwapSite]]:
    """Return the examined blocks and the sites that they form.

    A block that computes equal bits on one side's values may differ on those of the other side. So if the sites do not
    explain the whole drift, blocks that were found equal may be part of a site.
    """
    pair = tests.pair
    overridden = {
        pair.home[side][node]
        for side in SIDES
        for node in kernels[side].foreign
        if pair.flows[side].nodes[node].call.compiled is None
    }
    sites = sites_of(pair, examined, overridden)
    if not _is_complete(tests, _causes(pair, examined, sites, labels)):
        doubted = {number: replace(block, differs=block.differs or None) for number, block in examined.items()}
        doubted_sites = sites_of(pair, doubted, overridden)
        if _is_complete(tests, _causes(pair, doubted, doubted_sites, labels)):
            sites, examined = doubted_sites, doubted
    return examined, sites


def _split(
    tests: HybridTests, examined: Mapping[int, Examined], sites: Sequence[SwapSite], threshold: float
) -> tuple[list[SwapSite], dict[SwapSite, list[NetEffect | None]]]:
    """Return the sites, split into their kernels where that matters, and the effects that were measured before.

    Effects are measured if a site can be split and the step drifts beyond rounding. If another site is at fault, a site
    that only rounds differently stays whole.
    """
    causes = causes_of(tests.pair, examined, sites)
    can_be_split = any(len(parts_of(tests, examined, site)) > 1 for site in sites)
    if not (1 < len(causes) <= MOST_MEASURED and can_be_split and is_beyond(tests.swapped_out([]), threshold)):
        return split_sites(tests, examined, sites), {}
    effects = net_effects(tests.pair, causes)
    return split_sites(tests, examined, sites, only_rounding(causes, examined, effects)), effects


def _is_complete(tests: HybridTests, causes: list[Cause]) -> bool:
    """Check whether side b without these causes computes the values of side a, bit for bit."""
    try:
        return tests.swapped_out(causes).is_none
    except Infeasible:
        return False


def _causes(
    pair: TapePair, examined: Mapping[int, Examined], sites: Sequence[SwapSite], labels: Mapping[Side, str]
) -> list[Cause]:
    """Return the causes of these sites, preceded by the inputs of the step that differ."""
    causes = with_same_number_joined(pair, causes_of(pair, examined, sites))
    inputs = differing_inputs(pair)
    if not inputs:
        return causes
    nothing: dict[Side, tuple[str, ...]] = {"a": (), "b": ()}
    why = ("the step starts from different data", *inputs_in_words(pair, inputs, labels))
    return [Cause("setup", "data", nothing, why, (), tuple(inputs)), *causes]


def _counted(differing: int, blocks: int, causes: Sequence[Cause]) -> str:
    """Return `29 of 224 blocks compute different bits, because of 7 causes`.

    Causes that are inputs of the step do not count.
    """
    count = sum(not cause.inputs for cause in causes)
    counted = [f"{count} cause{'s' if count != 1 else ''}"] if count or not causes else []
    counted += ["differing inputs of the step"] if count < len(causes) else []
    compute = "computes" if differing == 1 else "compute"
    return f"{differing} of {blocks} blocks {compute} different bits, because of {' and '.join(counted)}"


def _notes(
    controls: Mapping[Side, bool], kernels: Mapping[Side, Found], sides: Mapping[Side, StepSide], untested: int
) -> list[str]:
    notes = []
    for side in SIDES:
        label, in_context = sides[side].label, kernels[side].in_context
        notes += [f"{note}; its kernels are executed one by one instead" for note in sides[side].notes]
        if not controls[side]:
            notes.append(
                f"the tape of {label}, executed with {label}'s own kernels, does not reproduce the recorded bits"
            )
        if in_context:
            compute = "1 call" if len(in_context) == 1 else f"{len(in_context)} calls"
            compute += f" of {label} compute{'s' if len(in_context) == 1 else ''}"
            notes.append(f"{compute} different bits when executed alone than within the graph")
    if untested:
        were = "1 cause was" if untested == 1 else f"{untested} causes were"
        notes.append(f"{were} not tested, because the time for the search was over (--budget)")
    return notes

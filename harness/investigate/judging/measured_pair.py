"""The measurements of a pair: its distances, set-up, scores and controls, as read from the evidence.

This module decides nothing. It names evidence that cannot be read in `unreadable`, and uses the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from ...drift.calibration import threshold_of_pair
from ...drift.global_batch import whole_batch_compared
from ...drift.nonfinite import nonfinite
from ...drift.referee_accuracy import Accuracy
from ...drift.repetition import Repetition
from ...drift.run_comparison import RunComparison, compare_runs
from ...drift.setup.setup_triage import setup_differences
from ...drift.setup.split_batch import SplitBatch, total_losses
from ...drift.setup.step_setup import made_by_the_training, rounded_arguments
from ...drift.setup_difference import SetupDifference
from ...drift.verdict import VerdictEvidence
from ...errors import JournalError
from ...records.frames import REFUSED
from ...records.results.culprit import MARK_STEP
from ...records.results.findings import StepKind
from ...records.results.localization_record import Localization
from ...records.run.step_files import STATE
from ...runs.mapped_tensors import TensorFile
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import read_state, state_steps
from ..evidence.ended_by_values import ended_by_values, length_in_words
from ..evidence.explained_scores import Scores, with_explanations
from ..evidence.kept_repetition import controls_of
from ..evidence.mode_spreads import ModeSpread, Spreads
from ..evidence.pair_evidence import PairEvidence
from ..evidence.pair_localizations import localizations
from ..evidence.pair_scores import scores_of, spec_of, spreads_of, unrepeatable_of_script
from ..evidence.split_batches import split_of
from ..evidence.step_kinds import compared_kinds, step_kinds
from ..evidence.steps_in_double import accuracy_of
from ..experiments.investigation_plan import remedy_of_draws
from .investigate_command import command_for

Kind = TypeVar("Kind")

OF_ONE_RANK = ("initial", "generator", "batch")
"""Kinds of set-up differences that mean nothing if one rank is compared with a process that has the whole batch."""

ENDED = {
    "crashed": "crashed",
    "killed": "was killed",
    "timeout": "ran out of time",
    "out-of-memory": "ran out of memory",
}


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """The measurements of a pair.

    setup: the differences in the set-up, without those that follow from how the two runs are compared
    split: how one side splits the other side's batches; None if none does
    referee: the comparison with the steps in double; None if it was not made, or if the runs are identical
    unreadable: the evidence that could not be read
    length: if computed values decide the lengths of the runs, a sentence about these lengths, else ""
    spreads: the spread of each mode that does not repeat, by its label
    kinds: the kinds of steps, with the numbers of those that were compared; empty if no step was scored
    """

    compared: RunComparison
    setup: Sequence[SetupDifference]
    localized: Sequence[Localization]
    scores: Scores
    controls: Mapping[str, Repetition]
    referee: Accuracy | None
    unreadable: Sequence[str]
    length: str
    spreads: Mapping[str, ModeSpread]
    split: SplitBatch | None
    kinds: Sequence[StepKind] = ()


def measure(evidence: PairEvidence) -> MeasuredPair:
    """Read the measurements of a pair whose runs both have steps."""
    a, b = evidence.a, evidence.b
    unreadable: list[str] = []
    several = evidence.one_against_several
    compared = whole_batch_compared(a, b) if several else compare_runs(a, b, unrepeatable_of_script(evidence))
    split = None if several else split_of(evidence)
    if split is not None and split.is_same_data:
        compared = replace(compared, losses=total_losses(a, b))
    localized = localizations(evidence)
    empty = Scores((), threshold_of_pair(spec_of(a), spec_of(b)), "", (), "the experiments cannot be read")
    scores = with_explanations(_readable(lambda: scores_of(evidence), empty, unreadable), localized)
    # The referee computes the losses and gradients of each call, which are not those of the other side's calls.
    is_alike = compared.identical or several or (split is not None and split.is_same_data)
    by_values = ended_by_values(a, b, evidence.forced)
    nothing: Spreads = {}
    spreads = _readable(lambda: spreads_of(evidence), nothing, unreadable)
    return MeasuredPair(
        compared=compared,
        setup=_setup(evidence, localized, split, by_values=by_values),
        localized=localized,
        scores=scores,
        controls=_controls(evidence, spreads, scores.threshold.fault, by_values=by_values),
        spreads={run.manifest.label: spreads[side] for side, run in (("a", a), ("b", b)) if side in spreads},
        referee=None if is_alike else _readable(lambda: accuracy_of(evidence), None, unreadable),
        unreadable=unreadable,
        length=length_in_words(a, b) if by_values else "",
        split=split,
        kinds=_readable(lambda: _compared_kinds(evidence, compared, scores), (), unreadable),
    )


def _compared_kinds(evidence: PairEvidence, compared: RunComparison, scores: Scores) -> tuple[StepKind, ...]:
    if compared.identical or not scores.steps:
        return ()
    scored = {step_score.step for step_score in scores.steps}
    return compared_kinds(step_kinds(evidence.a, evidence.b), scored, compared.first_differing_step)


def verdict_evidence(evidence: PairEvidence, measured: MeasuredPair, failed: Sequence[str]) -> VerdictEvidence:
    """Return the measurements in the form from which `drift.verdict.decide` derives the verdict."""
    a, b, compared = evidence.a, evidence.b, measured.compared
    # If the repetition could not keep a state, its notice says why no step can start from one.
    lacking = f"{STATE} is not available: "
    notices = () if evidence.a_again is None else evidence.a_again.manifest.notices
    why = next((notice.partition(lacking)[2] for notice in notices if lacking in notice), "")
    return VerdictEvidence(
        a=a.manifest.label,
        b=b.manifest.label,
        threshold=measured.scores.threshold,
        identical=compared.identical,
        first_differing_step=compared.first_differing_step,
        failed=tuple(failed),
        repetitions=tuple(measured.controls.values()),
        setup=tuple(measured.setup),
        nonfinite=nonfinite(a, b),
        steps=measured.scores.steps,
        unscored=measured.scores.why,
        stateless=f"no step of this script can be started from another run's state: {why}" if why else "",
        command=command_for(a, b),
        common_steps=compared.common_steps if compared.cut_short else None,
        drawing=remedy_of_draws([spec_of(a), spec_of(b)]),
        recording=max(
            (spread.spread.score for spread in measured.spreads.values() if spread.by_recording), default=0.0
        ),
    )


def named_runs(evidence: PairEvidence) -> dict[str, RecordedRun]:
    """Return the modes' own runs and the experiments that the verdict needs, by their names in sentences."""
    a, b = evidence.a.manifest.label, evidence.b.manifest.label
    runs = {
        a: evidence.a,
        b: evidence.b,
        f"the repetition of {a}": evidence.a_again,
        f"the repetition of {b}": evidence.only("b", "again"),
        f"the second training run of {b}": evidence.forced,
    }
    return {name: run for name, run in runs.items() if run is not None}


def failure_of(evidence: PairEvidence) -> list[str]:
    """Describe the run that failed: a mode's own run, else an experiment that the verdict needs. The list is empty if
    none did."""
    failures = [
        f"{_ended(name, run)} after {len(run.journal.steps)} step{'s' if len(run.journal.steps) != 1 else ''}: "
        f"{run.manifest.message}"
        for name, run in named_runs(evidence).items()
        if run.manifest.failed and run.manifest.status != "nonfinite"
    ]
    return failures[:1]


def _ended(name: str, run: RecordedRun) -> str:
    if run.manifest.status == REFUSED:
        return f"numdrift ended {name}"
    return f"{name} {ENDED.get(run.manifest.status, run.manifest.status)}"


def _setup(
    evidence: PairEvidence, localized: Sequence[Localization], split: SplitBatch | None, *, by_values: bool
) -> list[SetupDifference]:
    a, b, forced = evidence.a, evidence.b, evidence.forced
    states = (_first_state(a, evidence.a_again), _first_state(b, evidence.b_again))
    own, rounded = made_by_the_training(b, forced), rounded_arguments(forced)
    is_drawn_again = any(
        localization.is_drawn_again or any(culprit.kind == MARK_STEP for culprit in localization.culprits)
        for localization in localized
    )
    void = {
        *(OF_ONE_RANK if evidence.one_against_several else ()),
        *(("steps",) if by_values else ()),
        *(("generator",) if is_drawn_again else ()),  # the mode repeated some draws, so the generators differ
    }
    differences = setup_differences(a, b, *states, from_the_model=own, rounded=rounded, split=split)
    return [difference for difference in differences if difference.kind not in void]


def _controls(evidence: PairEvidence, spreads: Spreads, threshold: float, *, by_values: bool) -> dict[str, Repetition]:
    controls: dict[str, Repetition] = {}
    for side, (run, _, control) in controls_of(evidence).items():
        spread, label = spreads.get(side), run.manifest.label
        if spread is not None and spread.step_without_recording(threshold) is not None:
            control = Repetition(True, text=f"{label} computes the same bits each time its ops are recorded")
        elif spread is not None:
            control = replace(control, score=spread.spread.score)
        controls[label] = control
    label = evidence.b.manifest.label
    if by_values and label in controls and controls[label].what == "steps":
        # The control has the reference's length because it began its last step in the reference's state.
        controls[label] = Repetition(True, text=f"{label} repeats bit for bit up to its last common step")
    return controls


def _first_state(*runs: RecordedRun | None) -> TensorFile | None:
    for run in runs:
        if run is not None and 0 in state_steps(run.path):
            with suppress(JournalError):
                return read_state(run.path, 0)
    return None


def _readable(read: Callable[[], Kind], otherwise: Kind, unreadable: list[str]) -> Kind:
    try:
        return read()
    except JournalError as error:
        unreadable.append(str(error))
        return otherwise

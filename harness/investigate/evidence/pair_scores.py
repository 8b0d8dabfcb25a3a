"""The scores of the steps that started from the reference's state, and the comparison of both sides with double
precision."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...drift.calibration import threshold_of_pair
from ...drift.error_in_double import with_errors
from ...drift.recorded_drift import first_computed_difference
from ...drift.setup.split_batch import SplitBatch
from ...drift.setup.split_step import (
    PartWeights,
    last_backward,
    of_whole_step,
    part_weights,
    shows_gradients,
    without_gradients,
)
from ...drift.step_noise import Noise, pooled, read_noise
from ...drift.step_score import StepScore, score_step, without_values
from ...errors import JournalError, RunNotFound
from ...records.modes.mode_spec import ModeSpec
from ...records.run.run_config import RunConfig
from ...records.run.step_files import OF_SCRIPT
from ...runs.mapped_tensors import TensorFile
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import outcome_steps, read_exact, read_outcome, read_state, state_steps
from .explained_scores import Scores, without_unlooked
from .file_version import FileVersion
from .joined_outcome import outcome_against
from .mode_spreads import Spreads, mode_spreads
from .own_spread import kept_values
from .pair_evidence import PairEvidence
from .rerun_noise import noise_of_reruns
from .same_state_steps import reference_outcomes, started_steps
from .split_batches import split_of
from .steps_in_double import exact_run

ANEW = " (remove that run's folder; `numdrift investigate` then repeats the run)"


def spec_of(run: RecordedRun) -> ModeSpec:
    """Return the mode of a recorded run."""
    return RunConfig.load(run.path / "config.json").mode


def scores_of(evidence: PairEvidence) -> Scores:
    """Score every step whose outcome both sides kept. `unreplayed` names the steps that cannot be read."""
    threshold = threshold_of_pair(spec_of(evidence.a), spec_of(evidence.b))
    outcomes = reference_outcomes(evidence)
    noises, reasons = _noise_of_pair(evidence)
    started, split = started_steps(evidence), _same_data(evidence)
    if not started or not outcomes:
        return Scores((), threshold, "", reasons, "no step was started from the reference's state")
    scored, unusable = [], list(reasons)
    for step in sorted(started):
        if step not in outcomes:
            continue
        try:
            scored.append(
                _scored(
                    step,
                    outcomes[step],
                    started[step],
                    noises,
                    evidence,
                    is_split=split is not None and step in split.steps,
                )
            )
        except (JournalError, RunNotFound) as error:
            unusable.append(f"step {step} is not scored: {error}{ANEW}")
    if noises:
        replays = min(noise.replays for noise in noises.values())
        steps = ", ".join(map(str, sorted(noises)))
        how = f"{replays} replays with random rounding of the tape of step {steps}"
    else:
        count = len(evidence.several("a", "ulp"))
        how = (
            f"{count} runs of the script from states that are one ULP off" if count else "rounding of the results alone"
        )
    ignored = unrepeatable_of_script(evidence)
    scored = [without_values(step_score, ignored) for step_score in scored] if ignored else scored
    if (live := _unrecorded_step(evidence)) is not None:
        scored = [live if step_score.step == live.step else step_score for step_score in scored]
    parts = "" if split is None else split.in_words(evidence.a.manifest.label, evidence.b.manifest.label)
    scores = Scores(tuple(scored), threshold, how, tuple(unusable), parts=parts)
    return without_unlooked(scores if scored else replace(scores, why="none of the experiments can be read"))


def unrepeatable_of_script(evidence: PairEvidence) -> frozenset[str]:
    """Return the values that only the script knows and that differ between the reference's two runs, although these
    runs are equal otherwise: they come from outside, such as a time. Nothing can be said of them."""
    a, again = evidence.a, evidence.a_again
    if again is None or first_computed_difference(a, again) is not None:
        return frozenset()
    names = set[str]()
    for step in {*state_steps(a.path)} & {step + 1 for step in outcome_steps(again.path)}:
        with suppress(JournalError, RunNotFound):
            before, after = read_state(a.path, step).tensors, read_outcome(again.path, step - 1).tensors
            common = (name for name in before if name.startswith(OF_SCRIPT) and name in after)
            names |= {name for name in common if before[name].tobytes() != after[name].tobytes()}
    return frozenset(names)


def score_of(evidence: PairEvidence, run: RecordedRun, step: int, folder: Path | None = None) -> StepScore | None:
    """Return the score of a step that this run began in the reference's state; None if one side did not finish the
    step.

    With a `folder`, score the outcome in that folder instead: the outcome of a different execution of the step.

    Raises JournalError for an outcome that cannot be read.
    """
    outcomes = reference_outcomes(evidence)
    if step not in outcomes or step not in outcome_steps(folder or run.path):
        return None
    live = _unrecorded_step(evidence)
    if live is not None and live.step == step:
        outcome = read_outcome(folder or run.path, step)
        reference = kept_values(evidence.a, step, outcome)
        common = {name: outcome.tensors[name] for name in reference.tensors}
        noise = _taped_noise(evidence)[0].get(step, Noise(step, 0, {}))
        return score_step(reference, replace(outcome, tensors=common), noise)
    split = _same_data(evidence)
    is_split = split is not None and step in split.steps
    return _scored(step, outcomes[step], run, _noise_of_pair(evidence)[0], evidence, folder, is_split=is_split)


def _same_data(evidence: PairEvidence) -> SplitBatch | None:
    """Return how one side splits the other side's batches; None unless the parts were seen to be the batches."""
    split = split_of(evidence)
    return split if split is not None and split.is_same_data else None


def weights_of(evidence: PairEvidence, step: int) -> PartWeights | None:
    """Return the weights of the parts of a split batch in a step that both sides began in the same state; None if one
    side did not keep the step, or if its gradients say nothing. Raises JournalError."""
    outcomes, started, noises = reference_outcomes(evidence), started_steps(evidence), _noise_of_pair(evidence)[0]
    if step not in outcomes or step not in started or not noises:
        return None
    split = split_of(evidence)
    a, b = (read_outcome(of_step[step].path, step) for of_step in (outcomes, started))
    if split is None:
        return None
    noise = _noise_at(step, a, noises.get(step) or pooled(step, list(noises.values())))
    whole, parts = (b, a) if split.side == "a" else (a, b)
    return part_weights(of_whole_step(whole, last_backward(a)), parts, noise)


def _scored(
    step: int,
    reference: RecordedRun,
    run: RecordedRun,
    noises: Mapping[int, Noise],
    evidence: PairEvidence,
    folder: Path | None = None,
    *,
    is_split: bool = False,
) -> StepScore:
    """Score a step by its own noise, else by that of all taped steps, else by the noise of perturbed runs."""
    taped = noises.get(step) or (pooled(step, list(noises.values())) if noises else None)
    if taped is not None and not evidence.one_against_several and not is_split:
        a, b = (FileVersion.of_outcome(path, step) for path in (reference.path, folder or run.path))
        scored = _scored_once(_Scoring(step, a, b, taped))
        exact = exact_run(evidence, step) if scored.score > 1 else None
        if exact is None:
            return scored
        explained = _explained_once(_Scoring(step, a, b, taped), FileVersion.of_exact(exact.path, step))
        # Only if the errors explain all of the step's drift: a fault in a part of the step keeps its score.
        threshold = threshold_of_pair(spec_of(evidence.a), spec_of(evidence.b))
        return explained if explained.score <= threshold.fault < scored.score else scored
    values = read_outcome(reference.path, step)
    noise = noise_of_reruns(evidence, step, values) if taped is None else _noise_at(step, values, taped)
    b_values = outcome_against(evidence, run, step) if folder is None else read_outcome(folder, step)
    if is_split:
        last = last_backward(values)
        values, b_values = of_whole_step(values, last), of_whole_step(b_values, last)
        # A script may add up the gradients of the parts and divide them before its optimizer steps.
        left = score_step(without_gradients(values), without_gradients(b_values), noise)
        threshold = threshold_of_pair(spec_of(evidence.a), spec_of(evidence.b))
        if shows_gradients(values) and left.score <= threshold.fault:
            return left
    return score_step(values, b_values, noise)


def _noise_at(step: int, a: TensorFile, noise: Noise) -> Noise:
    return noise if noise.step == step else noise.at(step, a)


# An investigation requests the scores of all steps after each of its rounds, but a round changes few scores. So scores
# are cached.


@dataclass(frozen=True, slots=True)
class _Scoring:
    """A step of two runs and the noise to score it by: this step's, or that of all steps with a tape."""

    step: int
    a: FileVersion
    b: FileVersion
    noise: Noise = field(hash=False)  # contains a mapping, so it is compared but not hashed


@functools.lru_cache(maxsize=1024)
def _scored_once(scoring: _Scoring) -> StepScore:
    """Score a step of two runs; the result is cached. Raises JournalError."""
    a, b = (read_outcome(outcome.run, scoring.step) for outcome in (scoring.a, scoring.b))
    return score_step(a, b, _noise_at(scoring.step, a, scoring.noise))


@functools.lru_cache(maxsize=1024)
def _explained_once(scoring: _Scoring, exact: FileVersion) -> StepScore:
    """Score a step that was also computed in double; the result is cached. Raises JournalError."""
    a, b = (read_outcome(outcome.run, scoring.step) for outcome in (scoring.a, scoring.b))
    values = read_exact(exact.run, scoring.step)
    scored = _scored_once(scoring)
    return scored if values is None else with_errors(scored, a, b, values)


def spreads_of(evidence: PairEvidence) -> Spreads:
    """Return the spread of each side that does not repeat itself."""
    return mode_spreads(evidence, _taped_noise(evidence)[0])


def _unrecorded_step(evidence: PairEvidence) -> StepScore | None:
    """Return the score of the step that has to be compared without recording; None if there is none."""
    fault = threshold_of_pair(spec_of(evidence.a), spec_of(evidence.b)).fault
    steps = (spread.step_without_recording(fault) for spread in spreads_of(evidence).values())
    return next((step for step in steps if step is not None), None)


def _noise_of_pair(evidence: PairEvidence) -> tuple[dict[int, Noise], tuple[str, ...]]:
    """Return the noise of the reference's taped steps, with the spread of the other mode if that mode does not
    repeat, and with what recording moves."""
    noises, reasons = _taped_noise(evidence)
    spreads = mode_spreads(evidence, noises)
    for side, spread in spreads.items():
        if side == "b" or spread.by_recording:
            noises = {step: noise.with_spread(spread.spread.relative) for step, noise in noises.items()}
    return noises, reasons


def _taped_noise(evidence: PairEvidence) -> tuple[dict[int, Noise], tuple[str, ...]]:
    noises, reasons = {}, []
    for run in evidence.measured:
        for step in outcome_steps(run.path):
            try:
                noise = read_noise(run.path, step)
            except JournalError as error:
                reasons.append(f"{error}{ANEW}")
                continue
            if noise is None:
                continue
            # If a step was taped twice, use the noise with stronger rounding.
            if noise.equal and not noise.replays:
                continue  # its tape was not replayed with random rounding
            if noise.equal and (step not in noises or noise.edge_replays):
                noises[step] = noise
            elif not noise.equal:
                reasons.append(f"step {step}: {noise.reason or 'its replay is not bit-equal'}")
    return noises, tuple(reasons)

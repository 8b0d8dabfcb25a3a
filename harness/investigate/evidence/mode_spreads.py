"""The spreads of the modes of a pair that do not repeat, from their tapes and from steps that were executed twice."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from ...drift.recorded_drift import first_computed_difference
from ...drift.repetition import COMPUTED, Repetition
from ...drift.step_noise import Noise, noises_of
from ...drift.step_score import StepScore, score_step
from ...drift.verdict import worst_of
from ...errors import JournalError, RunNotFound
from ...records.modes.mode_spec import parse_mode
from ...records.run.run_config import RunConfig
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import outcome_path, outcome_steps, read_outcome
from .file_version import FileVersion
from .kept_repetition import controls_of, repetition_of
from .own_spread import OwnSpread, joined, kept_values, of_journals, of_kept_values, of_noise, of_outcomes, units_of
from .pair_evidence import PairEvidence

MOST_PAIRS = 4
"""The largest number of steps whose two outcomes are compared: an outcome is several times larger than a model."""


@dataclass(frozen=True, slots=True)
class ModeSpread:
    """The spread of a mode that does not repeat.

    control: what differed first between the mode's two training runs
    calls: the calls that, according to its tapes, do not repeat
    adding: if the mode compiles, the calls that may be those that do not repeat
    by_recording: whether the mode computes the same bits each time its ops are recorded, and other bits if they are not
    unrecorded: if so, the score of the control's step in the two modes' own runs, which do not record ops; None if it
        is not known
    """

    control: Repetition
    spread: OwnSpread
    calls: tuple[Mapping[str, Any], ...] = ()
    adding: tuple[Mapping[str, Any], ...] = ()
    by_recording: bool = False
    unrecorded: StepScore | None = None

    def step_without_recording(self, threshold: float) -> StepScore | None:
        """Return the score without recording if it is the step's score; else None.

        If recording moves a step beyond the threshold, the noise was measured on another formula than the one that is
        used without recording. So a finite score beyond the threshold proves nothing. A NaN on one side only does: no
        rounding makes one.
        """
        if self.unrecorded is None or self.spread.score <= threshold:
            return None
        score = worst_of([self.unrecorded])
        return self.unrecorded if score <= threshold or math.isinf(score) else None


Spreads = dict[Literal["a", "b"], ModeSpread]


def mode_spreads(evidence: PairEvidence, noises: Mapping[int, Noise]) -> Spreads:
    """Return the spread of each side that does not repeat and whose spread is known.

    `noises` are those of the reference's steps, with which the spreads are compared. What recording moves is also known
    without them.
    """
    found: Spreads = {}
    for side, (run, again, control) in controls_of(evidence).items():
        if control.repeatable or control.what not in COMPUTED:
            continue
        taped = list(_taped(evidence.taped if side == "a" else evidence.started))
        calls = {(call["op"], call["line"], call["module"]): call for noise in taped for call in noise.unrepeatable}
        pairs = [*(_of_reference(evidence, control) if side == "a" else _of_mode(evidence))]
        # The calls of an eager mode are executed from its tape. If each repeats, the mode differs for another reason.
        facts = parse_mode(run.manifest.spec).capabilities
        is_seen = facts.tapes_itself and not facts.compiles
        by_recording = None
        if is_seen and not any(noise.unrepeatable or noise.doubted for noise in taped):
            by_recording = _of_recording(evidence, control, taped) if side == "a" else None
            if by_recording is None:
                continue
            pairs.append(by_recording)
        spreads = [*(of_noise(noise) for noise in taped if noise.unrepeatable), *pairs]
        if not spreads or not (noises or by_recording) or control.step is None:
            continue
        # The step in which the control differed may show a spread that the tapes do not, such as that of a number from
        # outside of torch.
        spread = joined([*spreads, of_journals(control.step, run.journal, again.journal)])
        assert spread is not None
        # If all bits are equal otherwise, no noise was measured: the results' own rounding is at most that noise.
        nearest = Noise(control.step, 0, {})
        if noises:
            nearest = noises[min(noises, key=lambda step: min(abs(step - own) for own in spread.steps))]
        kept = next((kept for kept in evidence.measured if outcome_path(kept.path, nearest.step).exists()), None)
        units = {} if kept is None else units_of(read_outcome(kept.path, nearest.step))
        adding = {(call["op"], call["line"], call["module"]): call for noise in taped for call in noise.adding}
        found[side] = ModeSpread(
            control,
            spread.scored(nearest, units),
            tuple(calls.values()),
            () if calls else tuple(adding.values()),
            by_recording=by_recording is not None,
            unrecorded=None if by_recording is None else _unrecorded_score(evidence, control.step, nearest),
        )
    return found


def _of_recording(evidence: PairEvidence, control: Repetition, taped: Sequence[Noise]) -> OwnSpread | None:
    """Return how far recording of the ops moves the reference's step; None if something else moves it, or may.

    For some ops, autograd takes another formula while a dispatch mode is active (`areAnyTensorSubclassLike` in torch's
    FunctionsManual.cpp, as for `prod` and `masked_fill`). So the recorded step has other bits than the same step in the
    first run, and the same bits whenever it is recorded, and whenever its tape is replayed: `taped` has the noise of
    steps whose replay returned their bits.
    """
    step, again = control.step, evidence.a_again
    if not any(noise.step == step for noise in taped):
        return None  # threads race, or a value is computed outside of torch
    if step is None or again is None or not outcome_path(again.path, step).exists():
        return None
    tapes = RunConfig.load(again.path / "config.json").tapes
    recorded = [*evidence.several("a", "from-itself"), *evidence.several("a", "calls")]
    if tapes is None or step not in tapes or not recorded:
        return None
    for run in recorded:
        difference = repetition_of(again, run)
        # The run ends after the step, or has gone on from another state.
        if not difference.repeatable and difference.what != "steps" and (difference.step or 0) <= step:
            return None
    moved = of_kept_values(step, evidence.a, read_outcome(again.path, step))
    # A value of which other bits are no other number differs in the bits of a NaN, or in the sign of a zero.
    return moved if moved is not None and (control.what == "value" or any(moved.relative.values())) else None


def _unrecorded_score(evidence: PairEvidence, step: int, noise: Noise) -> StepScore | None:
    """Return the score of a step in the two modes' own runs.

    Return None if they did not begin it in the same state, or did not keep its parameters and buffers.
    """
    a, b, again = evidence.a, evidence.b, evidence.a_again
    kept = all(step in run.journal.value_steps for run in (a, b))
    if again is None or noise.step != step or not kept or first_computed_difference(a, b) != step:
        return None
    recorded = read_outcome(again.path, step)
    return score_step(kept_values(a, step, recorded), kept_values(b, step, recorded), noise)


def _taped(runs: tuple[RecordedRun, ...] | list[RecordedRun]) -> Iterator[Noise]:
    return (noise for run in runs for noise in noises_of(run.path) if noise.equal)


def _of_reference(evidence: PairEvidence, control: Repetition) -> Iterator[OwnSpread]:
    """Yield the spread of the step in which the control first differed.

    Until that step, the control's states equal those of the first run.
    """
    own, again, step = evidence.only("a", "from-itself"), evidence.a_again, control.step
    if own is not None and again is not None and step is not None:
        yield from _between(own, again, [step])


def _of_mode(evidence: PairEvidence) -> Iterator[OwnSpread]:
    """Yield the spreads of the steps that the mode has begun twice in the reference's state."""
    first, second = evidence.only("b", "forced"), evidence.only("b", "apart")
    if first is not None and second is not None:
        common = sorted({*outcome_steps(first.path)} & {*outcome_steps(second.path)})
        yield from _between(first, second, common[:MOST_PAIRS])


def _between(first: RecordedRun, second: RecordedRun, steps: list[int]) -> Iterator[OwnSpread]:
    for step in steps:
        paths = [outcome_path(run.path, step) for run in (first, second)]
        if all(path.exists() for path in paths):
            with suppress(JournalError, RunNotFound):
                yield _read(*(FileVersion.of_outcome(run.path, step) for run in (first, second)), step)


@functools.lru_cache(maxsize=64)
def _read(first: FileVersion, second: FileVersion, step: int) -> OwnSpread:
    """Return the spread between the outcomes of a step in two runs; the result is cached."""
    return of_outcomes(step, read_outcome(first.run, step), read_outcome(second.run, step))

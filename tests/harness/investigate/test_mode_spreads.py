"""Modes that do not repeat: their spread counts as noise, unless it is far beyond rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.investigate.evidence.pair_evidence import evidence_for
from numdrift.harness.investigate.evidence.pair_scores import spreads_of
from numdrift.harness.investigate.words.repetition_words import spread_sentence
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.runs.recorded_run import RecordedRun

from .written_evidence import (
    AGAIN,
    BEYOND,
    HARMLESS,
    NOISE,
    Outcome,
    Study,
    changed,
    in_text,
    noise_record,
    only_pair,
    resynced,
    training,
)

CALL = {
    "position": 3,
    "op": "aten.index_put.default",
    "phase": "backward",
    "module": None,
    "line": "train.py:12",
    "spread": 2.5,
}
ITSELF = Experiment("from-itself", "cpu")
APART = Experiment("apart", "compile", "cpu")
FORCED = Experiment("forced", "compile", "cpu")


def spread_record(spread: float) -> Mapping[str, Any]:
    """The noise of step 0, whose loss is so many noises apart in several executions."""
    record = dict(noise_record(0), unrepeatable=[CALL], settled=True)
    record["tensors"] = {**record["tensors"], "loss 0": {**record["tensors"]["loss 0"], "spread": spread * NOISE}}
    return record


def study(folder: Path, scores: Mapping[int, float], spread: float, live: float = 2.0**-20) -> Sequence[RecordedRun]:
    """Write a pair whose reference does not repeat: its control's loss of step 2 is by `live` another one."""
    written = Study(folder)
    reference, free = training(), training(apart_from=1)
    runs = [written.run("cpu", reference), written.run("compile", free)]
    control = changed(reference, 2, losses=(1.0 + live,))
    written.make(AGAIN, control)
    outcomes = dict.fromkeys({0, *scores}, Outcome())
    written.make(ITSELF, reference, outcomes, noises=[spread_record(spread)], events=resynced(outcomes))
    written.make(Experiment("again", "compile"), free)
    written.make(FORCED, free, {step: Outcome(z) for step, z in scores.items()}, events=resynced(scores))
    return runs


@pytest.mark.parametrize(("scores", "word"), [(HARMLESS, "rounding"), (BEYOND, "beyond-rounding")])
def test_the_spread_of_a_reference_that_does_not_repeat_counts_as_noise(
    tmp_path: Path, scores: Mapping[int, float], word: str
) -> None:
    pair = only_pair(study(tmp_path, scores, spread=1.0))
    assert pair.verdict == word
    # the noise of a value is that of rounding and the spread together
    expected = {step: score / 2**0.5 for step, score in scores.items()}
    assert {step.step: step.score for step in pair.steps} == pytest.approx(expected, rel=0.01)
    assert not pair.controls["cpu"]["repeatable"] and pair.controls["cpu"]["score"] == pytest.approx(1.0, rel=0.01)
    assert in_text(
        pair, "cpu does not repeat its own bits: aten.index_put in the backward, ", "train.py:12 (by up to 2.5"
    )
    assert in_text(pair, "its results are up to 1 times the rounding noise apart; that counts as noise")


def test_a_fault_is_not_hidden_by_a_spread_that_is_smaller(tmp_path: Path) -> None:
    pair = only_pair(study(tmp_path, {0: 0.5, 1: 2.0, 2: 400.0}, spread=10.0))
    assert (pair.verdict, pair.first_significant_step) == ("beyond-rounding", 2)


@pytest.mark.parametrize(("spread", "live"), [(1000.0, 2.0**-20), (1.0, 0.5)], ids=["the tape", "the control"])
def test_a_spread_far_beyond_rounding_decides_nothing(tmp_path: Path, spread: float, live: float) -> None:
    # a number from outside of torch is on the tape: only the control shows it
    pair = only_pair(study(tmp_path, HARMLESS, spread, live))
    assert pair.verdict == "nondeterministic"
    assert pair.controls["cpu"]["score"] > 100
    # the answer says how large a fault would have to be to show
    score, threshold = pair.controls["cpu"]["score"], pair.threshold
    seen = f"only a fault that moves the step by more than about {score * threshold:.2g} times that noise could be seen"
    assert in_text(
        pair, f"the executions of one step of cpu are up to {score:.2g} times the rounding noise apart", seen
    )


def test_a_spread_that_nothing_shows_decides_nothing(tmp_path: Path) -> None:
    written = Study(tmp_path)
    runs = [written.run("cpu", training()), written.run("compile", training(apart_from=1))]
    control = changed(training(), 2, losses=(1.0 + 2.0**-20,))
    written.make(AGAIN, control, dict.fromkeys(HARMLESS, Outcome()), noises=[noise_record(0)])
    assert only_pair(runs).verdict == "nondeterministic"


@pytest.mark.parametrize(("apart", "word"), [(3.0, "rounding"), (500.0, "nondeterministic")])
def test_a_mode_that_began_its_steps_twice_shows_its_spread(tmp_path: Path, apart: float, word: str) -> None:
    written = Study(tmp_path)
    reference, free = training(), training(apart_from=1)
    runs = [written.run("cpu", reference), written.run("compile", free)]
    written.make(AGAIN, reference, dict.fromkeys(HARMLESS, Outcome()), noises=[noise_record(0)])
    written.make(Experiment("again", "compile"), changed(free, 3, losses=(1.0 + 3e-7,)))
    outcomes = {step: Outcome(z) for step, z in HARMLESS.items()}
    written.make(FORCED, free, outcomes, events=resynced(outcomes))
    others = {step: Outcome(z + apart) for step, z in HARMLESS.items()}
    written.make(APART, free, others, events=resynced(others))
    spreads = spreads_of(evidence_for(*runs))
    assert spreads.keys() == {"b"} and spreads["b"].spread.score == pytest.approx(apart, rel=0.01)
    assert only_pair(runs).verdict == word


def test_the_calls_of_a_compiled_step_that_may_be_the_reason_are_named(tmp_path: Path) -> None:
    written = Study(tmp_path)
    reference, free = training(), training(apart_from=1)
    runs = [written.run("cpu", reference), written.run("compile", free)]
    written.make(AGAIN, reference, dict.fromkeys(HARMLESS, Outcome()), noises=[noise_record(0)])
    written.make(Experiment("again", "compile"), changed(free, 3, losses=(1.0 + 3e-7,)))
    outcomes = {step: Outcome(z) for step, z in HARMLESS.items()}
    adding = {"op": "aten.index_put.default", "line": "train.py:9", "phase": "backward", "module": "emb"}
    noise = {**noise_record(0), "adding": [adding], "settled": True}
    apart = {step: Outcome(z + 1.0) for step, z in HARMLESS.items()}
    written.make(FORCED, free, outcomes, events=resynced(outcomes))
    written.make(APART, free, apart, noises=[noise], events=resynced(outcomes))
    pair = only_pair(runs)
    assert pair.verdict == "rounding"
    assert in_text(
        pair, "compile does not repeat its own bits (which of its calls is not known; it may be aten.index_put "
    )
    assert in_text(pair, "in the backward of emb, ", "train.py:9). Executed several times")


def test_the_largest_share_is_named_first() -> None:
    calls = [{**CALL, "op": f"aten.op{number}.default", "share": share} for number, share in enumerate((0.1, 0.6, 0.3))]
    sentence = spread_sentence("cpu", calls, 0.5)
    assert sentence.startswith("cpu does not repeat its own bits: aten.op1 in the backward, ")
    assert "(by up to 2.5 of its own roundings, 60 % of the step's spread) and aten.op2" in sentence
    assert "and 1 more call compute different bits" in sentence

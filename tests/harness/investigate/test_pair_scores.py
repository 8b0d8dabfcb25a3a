"""Suspicious steps: which are looked at closer, and what becomes of the others."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from numdrift.harness.drift.calibration import Threshold
from numdrift.harness.drift.step_noise import Noise, TensorNoise
from numdrift.harness.drift.step_score import EDGE, StepScore
from numdrift.harness.investigate.evidence import pair_scores
from numdrift.harness.investigate.evidence.explained_scores import Scores, suspicious_steps, without_unlooked
from numdrift.harness.records.results.findings import TensorScore
from numdrift.harness.runs.step_outcomes import outcome_path
from numdrift.harness.tape.files.tensor_file import write_tensors

THRESHOLD = Threshold(16.0, 4.0, calibrated=True, provenance="")


def step(number: int, score: float, *, looked: bool = False, edge: bool = False) -> StepScore:
    tensor = TensorScore("gradient 0 w", score, score, 1.0, 1.0, EDGE if edge else "")
    return StepScore(number, score, "gradient 0 w", True, (tensor,), replays=8, looked_closer=looked)


def scores(*steps: StepScore) -> Scores:
    return Scores(steps, THRESHOLD, "", ())


def test_what_is_beyond_the_threshold_is_suspicious_until_it_was_looked_at() -> None:
    found = scores(step(0, 2.0), step(1, 100.0), step(2, 50.0, looked=True), step(3, math.inf))
    assert suspicious_steps(found) == [1, 3]


def test_steps_like_those_that_a_kink_explains_are_left_out_and_named() -> None:
    found = without_unlooked(scores(step(0, 2.0), step(1, 1.5, looked=True, edge=True), step(2, 100.0), step(3, 1.0)))
    assert [one.step for one in found.steps] == [0, 1, 3]
    assert "step 1: rounding alone flips a discrete choice" in found.notes[0]
    assert "step 2" in found.notes[1]


@pytest.mark.parametrize("looked", [step(1, 90.0, looked=True), step(1, 90.0, looked=True, edge=True)])
def test_one_step_that_nothing_explains_keeps_all(looked: StepScore) -> None:
    found = without_unlooked(scores(step(0, 2.0), looked, step(2, 100.0)))
    assert [one.step for one in found.steps] == [0, 1, 2]


def test_without_a_closer_look_nothing_is_left_out() -> None:
    found = without_unlooked(scores(step(0, 2.0), step(2, 100.0)))
    assert [one.step for one in found.steps] == [0, 2]
    assert not found.notes


def test_where_most_steps_are_suspicious_a_kink_explains_none_of_the_others() -> None:
    found = without_unlooked(scores(step(0, 90.0), step(1, 1.5, looked=True, edge=True), step(2, 100.0)))
    assert [one.step for one in found.steps] == [0, 1, 2]


def test_a_step_that_was_looked_at_for_another_mode_explains_nothing() -> None:
    found = without_unlooked(scores(step(0, 2.0), step(1, 0.0, looked=True), step(2, 100.0), step(3, 1.0)))
    assert [one.step for one in found.steps] == [0, 1, 2, 3]


def test_a_step_is_scored_anew_once_its_outcome_or_its_noise_is_another(tmp_path: Path) -> None:
    def gives(name: str, value: float) -> Any:
        path = outcome_path(tmp_path / name, 3)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {"loss 0": torch.tensor([1.0, value])}, {})
        return SimpleNamespace(path=tmp_path / name)

    def score(a: Any, b: Any, rms: float) -> float:
        noises = {2: Noise(2, 8, {"loss 0": TensorNoise(rms, math.sqrt(2))})}
        whole: Any = SimpleNamespace(one_against_several=False, measured=())
        return pair_scores._scored(3, a, b, noises, whole).score

    a, b = gives("a", 1.0), gives("b", 1.0)
    assert score(a, b, 1e-6) == 0
    b = gives("b", 1.1)
    first = score(a, b, 1e-6)
    assert first == score(a, b, 1e-6) > 0
    assert score(a, b, 1e-5) == pytest.approx(first / 10, rel=0.2)
    a = gives("a", 1.1)
    assert score(a, b, 1e-6) == 0

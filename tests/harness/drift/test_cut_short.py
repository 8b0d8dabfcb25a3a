"""Runs of different lengths: whose seconds were over is compared as far as it came, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.drift.repetition import repetition
from numdrift.harness.drift.run_comparison import compare_runs
from numdrift.harness.drift.setup.setup_triage import setup_differences
from numdrift.harness.drift.verdict import VerdictEvidence, decide
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.runs.recorded_run import RecordedRun

from .recordings import Step, record
from .test_verdict import THRESHOLD

STEPS = [Step(losses=(1.0 / (number + 1),)) for number in range(6)]
SECONDS = {"max_seconds": 60.0}
EXPERIMENT = Experiment("without", "compile", "cpu")


def pair(
    folder: Path, a: Mapping[str, Any] | None, b: Mapping[str, Any] | None, **manifest: Any
) -> tuple[RecordedRun, RecordedRun]:
    """Six steps and four, with the ends of their journals."""
    return record(folder / "cpu", STEPS, end=a), record(folder / "compile", STEPS[:4], end=b, **manifest)


@pytest.mark.parametrize("other", [None, {}, SECONDS, {"max_steps": 6}])
def test_a_run_whose_seconds_were_over_is_compared_on_common_steps(tmp_path: Path, other: Any) -> None:
    a, b = pair(tmp_path, other, SECONDS)
    compared, turned = compare_runs(a, b), compare_runs(b, a)
    for one in (compared, turned):
        assert one.identical and one.common_steps == 4
        assert "only the 4 common steps are compared: compile was ended after 60 s (--max-seconds)" in one.notes
        assert one.to_json()["cut_short"] == "compile"
    assert setup_differences(a, b) == setup_differences(b, a) == []
    assert repetition(a, b).repeatable
    verdict = decide(VerdictEvidence("cpu", "compile", THRESHOLD, identical=True, common_steps=4))
    assert (
        verdict.text == "identical: everything that cpu and compile recorded in their 4 common steps has the same bits"
    )


def test_what_differs_in_a_common_step_differs(tmp_path: Path) -> None:
    a = record(tmp_path / "cpu", STEPS)
    b = record(tmp_path / "compile", [*STEPS[:3], replace(STEPS[3], losses=(7.0,))], end=SECONDS)
    assert not compare_runs(a, b).identical
    assert repetition(a, b).what == "loss"


@pytest.mark.parametrize(
    ("a", "b", "manifest"),
    [
        (None, {}, {}),  # it ended by itself
        (SECONDS, {}, {}),  # so did it, and the other one went on until its seconds were over
        ({}, {"max_steps": 4}, {}),  # another number of steps was asked for
        ({}, SECONDS, {"experiment": EXPERIMENT}),  # an experiment is told its steps
    ],
)
def test_other_lengths_are_another_setup(tmp_path: Path, a: Any, b: Any, manifest: dict[str, Any]) -> None:
    runs = pair(tmp_path, a, b, **manifest)
    assert not compare_runs(*runs).identical and "cut_short" not in compare_runs(*runs).to_json()
    assert [(one.kind, one.text) for one in setup_differences(*runs)] == [("steps", "6 against 4 steps")]
    assert repetition(*runs).what == "steps"


def test_an_experiment_of_a_run_that_was_cut_short_is_as_long(tmp_path: Path) -> None:
    a, b = pair(tmp_path, {}, {"max_steps": 4}, experiment=EXPERIMENT)
    assert compare_runs(a, b).identical
    assert (
        "only the 4 common steps are compared: compile was ended after as many steps as the run that it repeats"
        in compare_runs(a, b).notes
    )

"""The step at which an answer points is one whose noise was measured on its own tape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numdrift.harness.investigate.evidence.pair_evidence import EvidenceFolder, evidence_for
from numdrift.harness.investigate.evidence.pair_scores import scores_of
from numdrift.harness.investigate.experiments.laboratory import Laboratory
from numdrift.harness.investigate.experiments.pointed_step import MOST_MEASURED, measure_pointed_step, pointed_step
from numdrift.harness.investigate.experiments.suspicious_steps import EDGE_REPLAYS, look_closer, suspicious
from numdrift.harness.investigate.next_step import next_inquiry
from numdrift.harness.records.results.findings import JUMP, StepKind
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.runs.step_outcomes import read_noise_record, tape_path

from .written_evidence import (
    AGAIN,
    FAULT,
    FORCED,
    HARMLESS,
    INSPECT,
    NOISE,
    UNREPLAYED,
    compared_study,
    noise_record,
    only_pair,
)
from .written_laboratory import PLAN

LOOK = (INSPECT + FAULT) / 2
"""A score that is worth a look."""


def noisy(step: int, times: float) -> dict[str, Any]:
    """A step in which rounding moves the loss by so many times the noise of step 0."""
    record = noise_record(step)
    return {**record, "tensors": {**record["tensors"], "loss 0": {"rms": NOISE * times, "flips": 0, "norm": 1.0}}}


def measured(
    runs: Sequence[RecordedRun], noises: Mapping[int, float], *, answers: bool = True, steps: int = 5
) -> list[int]:
    """Return the steps that the worker was asked to measure; their noises are these, 1 where none is stated."""
    reference, asked = runs[0], list[int]()
    holding = EvidenceFolder.of(reference).path / AGAIN.name

    def ask(run: Path, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        assert run == holding and request["request"] == "noise"
        asked.append(request["step"])
        return {"noise": noisy(request["step"], noises.get(request["step"], 1.0))} if answers else None

    for step in range(steps):
        tape_path(holding, step).touch()
    laboratory = cast(Laboratory, SimpleNamespace(workers=SimpleNamespace(ask=ask)))
    assert measure_pointed_step(laboratory, reference, runs[1]) == bool(asked and answers)
    return asked


@pytest.mark.parametrize(
    ("scores", "noises", "asked", "verdict", "inspect", "points_at"),
    [
        # noise is tiny by chance in steps 0 and 2: that of the others is 20 times as large
        ({0: 0.5, 1: LOOK, 2: 1.0, 4: LOOK + 1}, {1: 20.0, 4: 20.0}, [4, 1], "rounding", False, 4),
        ({0: 0.5, 1: LOOK, 2: 1.0, 4: LOOK + 1}, {4: 20.0}, [4, 1], "rounding", True, 1),
        # the drift is worth a look in that very step
        ({0: 0.5, 1: LOOK, 2: 1.0, 4: 1.0}, {}, [1], "rounding", True, 1),
        # the step's own noise is smaller: a fault
        ({0: 0.5, 1: LOOK, 2: 1.0, 4: 1.0}, {1: 0.1}, [1], "beyond-rounding", False, 1),
        # the first step beyond the threshold, of many
        ({0: 0.5, 1: 2 * FAULT, 3: 4 * FAULT, 4: 3 * FAULT}, {}, [1], "beyond-rounding", False, 1),
        ({0: 0.5, 1: 2 * FAULT, 2: 1.0, 4: 4 * FAULT}, {1: 20.0}, [1, 4], "beyond-rounding", False, 4),
        # nobody is sent to a step within rounding, and the step with the largest score has a tape
        ({0: 0.5, 1: 0.9 * INSPECT, 2: 1.0, 4: 1.0}, {}, [], "rounding", False, 2),
        ({0: 0.5, 1: LOOK, 2: LOOK + 1, 4: 1.0}, {}, [], "rounding", True, 2),
    ],
)
def test_an_answer_points_at_a_step_that_was_measured(
    tmp_path: Path,
    scores: Mapping[int, float],
    noises: Mapping[int, float],
    asked: Sequence[int],
    verdict: str,
    inspect: bool,
    points_at: int,
) -> None:
    _, runs = compared_study(tmp_path, scores, noises=[noise_record(0), noise_record(2)])

    assert measured(runs, noises) == asked

    assert pointed_step(scores_of(evidence_for(runs[0], runs[1]))) is None
    pair = only_pair(runs)
    assert (pair.verdict, pair.inspect) == (verdict, inspect)
    assert not any("own tape" in note for note in pair.notes)
    # and that is the step that is taken apart
    inquiry = next_inquiry(pair, evidence_for(*runs), [], PLAN)
    assert inquiry is not None and inquiry.step == points_at


def test_the_measurements_end(tmp_path: Path) -> None:
    # given more steps that are worth a look than are measured, each far from the others
    apart = range(1, 1 + 10 * (MOST_MEASURED + 1), 10)
    exact = [noise_record(step) for step in range(0, 100, 2)]
    _, runs = compared_study(tmp_path, dict.fromkeys(apart, LOOK) | {0: 0.5}, noises=exact)

    assert measured(runs, dict.fromkeys(apart, 20.0), steps=100) == list(apart)[:MOST_MEASURED]

    pair = only_pair(runs)
    assert pair.inspect and f"the noise of step {apart[-1]} was not measured on its own tape" in pair.notes


def test_without_a_worker_a_further_run_tapes_the_step(tmp_path: Path) -> None:
    _, runs = compared_study(tmp_path, {0: 0.5, 2: LOOK, 4: 1.0})

    assert measured(runs, {}, answers=False) == [2]
    (plan,) = suspicious(runs[0], runs[1:]).plans
    assert plan.investigation is not None and (str(plan.tapes), plan.until) == ("2", 2)
    # and no step within rounding is taped for that
    _, runs = compared_study(tmp_path / "within", {0: 0.5, 2: 0.9 * INSPECT, 4: 1.0})
    assert not measured(runs, {}, steps=0) and not suspicious(runs[0], runs[1:]).plans


def test_a_reference_that_does_not_replay_has_no_step_to_measure(tmp_path: Path) -> None:
    _, runs = compared_study(tmp_path, {0: 0.5, 2: LOOK, 4: 1.0}, noises=[noise_record(0, **UNREPLAYED)])

    assert not measured(runs, {}) and not suspicious(runs[0], runs[1:]).plans


def test_stronger_rounding_is_added_to_what_was_measured(tmp_path: Path) -> None:
    # given a step whose noise was measured by replays with rounding alone
    _, runs = compared_study(tmp_path, {0: 0.5, 2: 2 * FAULT, 4: 1.0}, noises=[noise_record(0), noise_record(2)])
    holding, asked = EvidenceFolder.of(runs[0]).path / AGAIN.name, list[Mapping[str, Any]]()
    known = read_noise_record(holding, 2)
    assert known is not None and known["replays"]

    def ask(run: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        tensors = {name: {"rms": 0.0, "flips": 0, "norm": 1.0, "reach": 7.0} for name in known["tensors"]}
        return {"noise": {**known, "replays": 0, "tensors": tensors, "edge": {"replays": 16, "strength": 16.0}}}

    tape_path(holding, 2).touch()
    laboratory = cast(Laboratory, SimpleNamespace(workers=SimpleNamespace(ask=ask)))

    look_closer(laboratory, runs[0], runs[1])

    # then only the replays with stronger rounding were made
    assert [(request["step"], request["replays"], request["edge"]) for request in asked] == [(2, 0, EDGE_REPLAYS)]
    noise = read_noise_record(holding, 2)
    assert noise is not None and noise["replays"] == known["replays"] and noise["edge"]["replays"] == 16
    for name, value in noise["tensors"].items():
        assert value["rms"] == known["tensors"][name]["rms"] and value["reach"] == 7.0
    # and no further run tapes that step
    assert not suspicious(runs[0], runs[1:]).plans


@pytest.mark.parametrize(("score", "examined"), [(2.5, 2), (None, None)])
def test_a_step_whose_noise_the_step_in_double_contradicts_is_examined(
    tmp_path: Path, score: float | None, examined: int | None
) -> None:
    # given a pair that is undecided, although its drift is within the noise: an op that is wrong by itself may decide
    _, runs = compared_study(tmp_path, {0: 0.5, 2: 2.5, 4: 1.0})
    pair = replace(only_pair(runs), verdict=None, score=score)
    inquiry = next_inquiry(pair, evidence_for(*runs), [], PLAN)
    assert (None if inquiry is None else inquiry.at) == examined


@pytest.mark.parametrize(("taped", "jump", "examined"), [([], 3, 3), ([0], 3, 3), ([0], None, 0)])
def test_a_step_in_which_the_runs_suddenly_diverge_is_examined_even_without_a_tape(
    tmp_path: Path, taped: Sequence[int], jump: int | None, examined: int
) -> None:
    # given a pair within rounding, and tapes of some of its steps: on a busy machine, others were put off
    _, runs = compared_study(tmp_path, HARMLESS)
    for step in taped:
        tape_path(tmp_path / "evidence" / FORCED.name, step).parent.mkdir()
        tape_path(tmp_path / "evidence" / FORCED.name, step).touch()
    kinds = () if jump is None else (StepKind(JUMP, "where the runs suddenly diverge", 1, jump, 1),)
    pair = replace(only_pair(runs), kinds=kinds)
    inquiry = next_inquiry(pair, evidence_for(*runs), [], PLAN)
    assert inquiry is not None and inquiry.at == examined

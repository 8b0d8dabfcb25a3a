"""What an investigation starts from, how it ends, and its file: nothing is trained."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.experiments.search_time import default_budget
from numdrift.harness.investigate.method import changed_verdicts, investigate, investigate_runs, localize_runs
from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.findings import Findings, PairFindings
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.runs.run_layout import InvestigationFolder

from .written_evidence import Study, training
from .written_laboratory import (
    CHOICE,
    FROM_THE_STATE,
    ONCE_MORE,
    PLAN,
    WITHOUT,
    Investigator,
    Training,
    caused,
    drifting,
    laboratory_of,
)


@pytest.mark.parametrize("failing", ["cpu", "compile"])
def test_where_a_side_has_failed_nothing_is_made(investigated: Investigator, failing: str) -> None:
    # given a mode, or a reference, that crashed after two steps
    other = "compile" if failing == "cpu" else "cpu"
    behaviour = Training({"compile": {}}, {other: training(), failing: training(2, apart_from=1)})
    ended = investigated(behaviour, status="crashed", message="no reason")
    assert (ended.word, ended.rounds, ended.looks) == ("failed", [], [])
    assert f"{failing} crashed after 2 steps: no reason" in ended.findings.pairs[0].text[0]


def test_a_mode_that_has_failed_does_not_stop_the_others(investigated: Investigator) -> None:
    steps = {"cpu": training(), "compile": training(apart_from=1), "lazy": training(2, apart_from=1)}
    ended = investigated(Training({"compile": {}, "lazy": {}}, steps), status="crashed", message="no reason")
    assert [pair.verdict for pair in ended.findings.pairs] == ["rounding", "failed"]
    assert ended.rounds == [ONCE_MORE, FROM_THE_STATE]
    assert ended.looks == [("ops", 4)]
    assert ended.findings.exit_code == 3


def batch(folder: Path, **fields: Any) -> BatchPlan:
    modes = [parse_mode("cpu"), parse_mode("compile")]
    return BatchPlan(Path("train.py"), modes, InvestigationFolder(folder), **fields)


@pytest.mark.parametrize(
    ("plan", "rounds", "checkpoints"),
    [
        (replace(PLAN, state_budget=100), [("modes", ["cpu", "compile"])], 50),
        (replace(PLAN, state_budget=100, steps=StepSelection.of([1])), [("modes", ["cpu", "compile"])], 0),
        (
            replace(PLAN, against_single=True, localize="none"),
            [("modes", ["single"]), ("modes", ["cpu", "compile"])],
            0,
        ),
    ],
)
def test_the_modes_are_trained_before_anything_else(
    tmp_path: Path, plan: InvestigationRequest, rounds: Sequence[tuple[str, Sequence[str]]], checkpoints: int
) -> None:
    study = Study(tmp_path)
    steps = dict.fromkeys(("single", "cpu", "compile"), training())
    with laboratory_of(study, Training({"compile": {}}, steps)) as laboratory:
        findings = investigate(batch(tmp_path), plan, laboratory)
    assert laboratory.rounds[: len(rounds)] == rounds
    assert laboratory.plans["compile"].checkpoints == checkpoints
    assert findings.reference == ("single" if plan.against_single else "cpu")
    assert (tmp_path / "investigation.json").exists()
    if plan.against_single:
        alone, together = laboratory.plans["single"], laboratory.plans["cpu"]
        assert (alone.nproc, alone.sketches, list(alone.positions)) == (1, True, ["single", "cpu", "compile"])
        assert (together.sketches, together.positions) == (False, alone.positions)


def test_what_cannot_be_partitioned_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with laboratory_of(Study(tmp_path), Training({}, {})) as laboratory:
        with pytest.raises(UsageError, match="a bisection by partitions needs a run of one process"):
            investigate(batch(tmp_path, nproc=2), replace(PLAN, partition_bisect=True), laboratory)
        assert laboratory.rounds == []


@pytest.mark.parametrize("interrupted", ["cpu-again", "compile-from-cpu", "compile-without-cpu"])
def test_an_interrupt_ends_the_investigation_without_findings(
    investigated: Investigator, tmp_path: Path, interrupted: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        investigated(drifting({2: 40.0}, interrupted=interrupted), {2: caused(2)})
    assert not (tmp_path / "study" / "investigation.json").exists()


def test_an_interrupt_of_the_modes_ends_the_investigation(tmp_path: Path) -> None:
    with (
        laboratory_of(Study(tmp_path), Training({}, {}, interrupted="cpu")) as laboratory,
        pytest.raises(KeyboardInterrupt),
    ):
        investigate(batch(tmp_path), PLAN, laboratory)


def test_a_localized_pair_leaves_the_other_pairs_in_the_file(investigated: Investigator) -> None:
    # given an investigation of two modes
    steps = {"cpu": training(), "compile": training(apart_from=1), "lazy": training(apart_from=2)}
    behaviour = Training({"compile": {2: 40.0}, "lazy": {}}, steps)
    ended = investigated(behaviour)
    folder = ended.runs[0].path.parent
    # when one of them is taken apart once more
    study = Study(folder, {name: name for name in steps})
    with laboratory_of(study, behaviour) as laboratory:
        findings = localize_runs(ended.runs[:2], replace(PLAN, step=3), laboratory)
    # then every experiment was there, and the file has both
    assert laboratory.rounds == [] and findings.reused == 3
    assert [pair.b for pair in findings.pairs] == ["compile"]
    content = json.loads((folder / "investigation.json").read_text())
    assert [pair["b"] for pair in content["pairs"]] == ["lazy", "compile"]
    assert content["runs"].keys() == steps.keys()
    assert ended.steps_of("ops")[-1] == 3


def test_what_is_not_as_it_was_when_the_run_was_recorded_is_reported(investigated: Investigator) -> None:
    ended = investigated(drifting({}), environment={"torch": "1.0.0", "python": "3.1"})
    assert ended.sentences[0].startswith("compile was recorded with torch 1.0.0, but is repeated with ")


def test_a_verdict_that_the_causes_change_is_said_again() -> None:
    def findings(*verdicts: str) -> Findings:
        pairs = [PairFindings("cpu", name, word, [f"{word}: why"]) for name, word in zip("bc", verdicts, strict=True)]
        return Findings("train.py", "cpu", {}, pairs)

    assert changed_verdicts(findings("rounding", "rounding"), findings("beyond-rounding", "rounding")) == [
        "b against cpu: no longer rounding, because of its causes: beyond-rounding: why"
    ]


def test_a_search_whose_time_is_over_takes_one_step_apart_and_says_what_it_left_out(
    investigated: Investigator, tmp_path: Path
) -> None:
    behaviour = drifting({2: 40.0, 3: 90.0})
    choice = {2: CHOICE, 3: caused(3)}  # a discrete choice explains step 2, so that step 3 would be examined next
    ended = investigated(behaviour, choice, replace(PLAN, budget=1e-9, knobs=True))
    assert ended.looks == [("ops", 2)] and "compile-without-cpu" not in ended.made
    (note,) = [note for note in ended.findings.pairs[0].notes if "--budget" in note]
    assert "step 3" in note and "the compiler's stages and settings" in note
    assert f"`numdrift investigate {tmp_path / 'study'} --budget none` goes on from there" in note
    # with more time, the same investigation goes on
    study = Study(tmp_path / "study", {name: name for name in behaviour.steps})
    with laboratory_of(study, behaviour) as laboratory:
        findings = investigate_runs(ended.runs, replace(PLAN, budget=math.inf), laboratory)
    assert ended.steps_of("ops") == [2, 3] and WITHOUT in laboratory.rounds
    assert not any("--budget" in note for note in findings.pairs[0].notes)


def test_the_default_budget_grows_with_the_first_runs(tmp_path: Path) -> None:
    study = Study(tmp_path)
    short, long = study.run("cpu", training(), seconds=2.0), study.run("compile", training(), seconds=200.0)
    assert default_budget([short, short]) == 300.0
    assert default_budget([short, long]) == 4 * 202.0 + 60

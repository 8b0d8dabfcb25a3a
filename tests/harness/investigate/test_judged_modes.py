"""The findings on several modes, and on runs of several ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.harness.drift.recordings import X

from numdrift.harness.investigate.judging.judge import judge, judge_pairs
from numdrift.harness.runs.recorded_run import RecordedRun

from .written_evidence import (
    AGAIN,
    BEYOND,
    COUNT,
    FORCED,
    HARMLESS,
    MODE_AGAIN,
    Outcome,
    Study,
    changed,
    compared_study,
    in_notes,
    in_text,
    noise_record,
    only_pair,
    resynced,
    training,
)


def test_each_mode_has_its_own_verdict_and_the_worst_is_the_exit_code(tmp_path: Path) -> None:
    study, runs = compared_study(tmp_path, BEYOND)
    alike = study.run("cpu2=cpu", training())
    crashed = study.run("lazy", [], status="crashed", message="no reason")
    findings = judge([*runs, alike, crashed])
    assert [(pair.a, pair.b, pair.verdict) for pair in findings.pairs] == [
        ("cpu", "compile", "beyond-rounding"),
        ("cpu", "cpu2", "identical"),
        ("cpu", "lazy", "failed"),
    ]
    assert (findings.exit_code, findings.reference, findings.reproducer) == (3, "cpu", "train.py")
    endings = {name: (ending.status, ending.steps, ending.message) for name, ending in findings.runs.items()}
    assert endings == {
        "cpu": ("complete", COUNT, ""),
        "compile": ("complete", COUNT, ""),
        "cpu2": ("complete", COUNT, ""),
        "lazy": ("crashed", 0, "no reason"),
    }
    # and without the run that failed, a person is needed
    assert judge([*runs, alike]).exit_code == 1
    assert judge([runs[0], alike]).exit_code == 0


@pytest.mark.parametrize(("empty", "status"), [("cpu", "complete"), ("compile", "complete"), ("compile", "nonfinite")])
def test_a_run_that_ended_without_a_step_leaves_the_pair_undecided(tmp_path: Path, empty: str, status: str) -> None:
    study = Study(tmp_path)
    runs = [
        study.run(name, [], status=status) if name == empty else study.run(name, training())
        for name in ("cpu", "compile")
    ]
    # when
    pair = only_pair(runs)
    # then
    assert (pair.verdict, pair.exit_code, pair.culprits) == (None, 1, ())
    assert pair.text == [f"undecided: {pair.undecided}"]
    assert pair.undecided.startswith(f"{empty} recorded no step, so there is nothing to compare: ")


def test_pairs_may_have_references_of_their_own(tmp_path: Path) -> None:
    study, runs = compared_study(tmp_path, HARMLESS)
    alike = study.run("compile2=compile", training(apart_from=1))
    findings = judge_pairs([(runs[0], runs[1]), (runs[1], alike)])
    assert [(pair.a, pair.b, pair.verdict) for pair in findings.pairs] == [
        ("cpu", "compile", "rounding"),
        ("compile", "compile2", "identical"),
    ]
    assert (findings.reference, list(findings.runs)) == ("cpu", ["cpu", "compile", "compile2"])


@pytest.mark.parametrize(
    ("scores", "word", "worst", "sentence"),
    [
        (
            (HARMLESS, BEYOND),
            "beyond-rounding",
            1,
            "rank 0 is rounding, rank 1 is beyond-rounding; the findings below are those of rank 1",
        ),
        (
            (BEYOND, HARMLESS),
            "beyond-rounding",
            0,
            "rank 0 is beyond-rounding, rank 1 is rounding; the findings below are those of rank 0",
        ),
        ((HARMLESS, {1: 4.0}), "rounding", 1, "all are rounding; the findings below are those of rank 1"),
        ((HARMLESS, HARMLESS), "rounding", 0, "all are rounding; the findings below are those of rank 0"),
        ((HARMLESS, {}), None, 1, "rank 0 is rounding, rank 1 is undecided; the findings below are those of rank 1"),
        (
            ({}, BEYOND),
            "beyond-rounding",
            1,
            "rank 0 is undecided, rank 1 is beyond-rounding; the findings below are those of rank 1",
        ),
    ],
)
def test_the_worst_rank_decides(
    tmp_path: Path, scores: Sequence[Mapping[int, float]], word: str | None, worst: int, sentence: str
) -> None:
    _, runs = ranks_study(tmp_path, scores)
    pair = only_pair(runs)
    assert pair.verdict == word
    assert sentence in pair.text[1]
    expected = [max(of_rank.values(), default=None) for of_rank in scores]
    assert [rank.rank for rank in pair.ranks] == [0, 1]
    assert [rank.score for rank in pair.ranks] == [
        None if score is None else pytest.approx(score, rel=1e-3) for score in expected
    ]
    assert pair.score == pair.ranks[worst].score
    assert pair.text[0] == pair.ranks[worst].text
    assert pair.agreement == {"cpu": {"text": "ranks agree"}}
    assert pair.notes[-1] == "cpu: ranks agree"


def ranks_study(folder: Path, scores: Sequence[Mapping[int, float]]) -> tuple[Study, list[RecordedRun]]:
    """Write runs of as many ranks as there are scores."""
    study, count = Study(folder), len(scores)
    runs = list[RecordedRun]()
    for rank, of_rank in enumerate(scores):
        outcomes = {step: Outcome(score) for step, score in of_rank.items()}
        agreement = {"text": "ranks agree"} if not rank else None
        made = [
            study.run("cpu", training(), rank=rank, world_size=count, agreement=agreement),
            study.run("compile", training(apart_from=1), rank=rank, world_size=count),
        ]
        again = dict.fromkeys(outcomes, Outcome())
        study.make(AGAIN, training(), again, noises=[noise_record(1)] if again else [], rank=rank, world_size=count)
        study.make(MODE_AGAIN, training(apart_from=1), rank=rank, world_size=count)
        events = resynced(outcomes)
        study.make(FORCED, training(apart_from=1), outcomes, events=events, rank=rank, world_size=count)
        runs = runs or made
    return study, runs


def test_several_ranks_have_another_part_of_the_batch_than_one_process(tmp_path: Path) -> None:
    # given a reference of one process, whose batch and generators are not a rank's
    study = Study(tmp_path)
    free = changed(training(apart_from=1), 0, batches=((X,),), generators={"torch": "1", "python": "1"})
    single = study.run("single=cpu", training())
    ranks = [study.run("cpu", free, rank=rank, world_size=2) for rank in range(2)]
    pair = only_pair([single, ranks[0]])
    assert (pair.verdict, pair.ranks) == (None, ())
    assert not in_text(pair, "different-setup")
    # but another script is another set-up
    other = RecordedRun(ranks[0].path, replace(ranks[0].manifest, script_sha256="1"))
    assert [culprit.what for culprit in only_pair([single, other]).culprits] == ["script"]


def test_a_rank_that_cannot_be_read_leaves_the_first(tmp_path: Path) -> None:
    _, runs = ranks_study(tmp_path, (HARMLESS, BEYOND))
    (tmp_path / "compile" / "rank1" / "run.json").unlink()
    pair = only_pair(runs)
    assert (pair.verdict, pair.ranks) == ("rounding", ())
    assert in_notes(pair, "only rank 0 was ")


def test_ranks_of_a_run_that_failed_are_not_judged_one_by_one(tmp_path: Path) -> None:
    study = Study(tmp_path)
    a = study.run("cpu", training(), world_size=2, agreement={"text": "ranks agree"})
    b = study.run("compile", training(2, apart_from=1), world_size=2, status="crashed", message="no reason")
    pair = only_pair([a, b])
    assert (pair.verdict, pair.ranks, pair.notes[-1]) == ("failed", (), "cpu: ranks agree")

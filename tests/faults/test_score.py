"""The benchmark's command on a few cases of each kind of verdict, and how its score is counted."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from .any_order import VARIABLE
from .benchmark import can_be_unrepeatable
from .case import Case, Trial, all_cases, trials
from .investigations import executed, investigations
from .score import Judged, Score, interval, is_silent
from .site import blamed

CHOSEN = {
    "tanh_sam": [
        "nothing",
        "sum_orders-sum.reversed",
        "linear_by_einsum",
        "tanh_backward_bf16",
        "tanh_backward_from_step_7",
        "sam_without_restore",
        "batch_order",
        "sam_radius",
    ],
    "bag": ["loss_by_log1p", "order_of_sums", "logarithm_of_zero", "accumulation_forgets"],
}


@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param("tanh_sam", marks=pytest.mark.exhaustive), "bag"])
def test_chosen_cases_have_the_verdicts_that_they_expect(model: str, tmp_path: Path) -> None:
    # Given a few cases of a model.
    chosen = [trial for trial in trials(model) if trial.name in CHOSEN[model]]
    assert len(chosen) == len(CHOSEN[model])

    # When they are investigated as the benchmark does it.
    judged = [judgement for found in investigations(model, chosen) for judgement in executed(found, tmp_path, 2)]

    # Then every verdict is the one that the case states, and a late fault is dated.
    assert {one.trial.name: one.verdict for one in judged if not one.exact} == {}
    assert [one.first_step for one in judged if one.trial.name == "tanh_backward_from_step_7"] in ([], [7])


@pytest.mark.exhaustive
def test_faults_are_found_beneath_products_that_do_not_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a benign variant and two faults, in trainings whose products add in another order each time.
    monkeypatch.setenv(VARIABLE, "1")
    names = ("loss_by_log1p", "accumulation_forgets", "logarithm_of_zero")
    chosen = [trial for trial in trials("bag") if trial.name in names]
    assert len(chosen) == len(names) and all(map(can_be_unrepeatable, chosen))

    # When they are investigated as the benchmark does it.
    judged = [judgement for found in investigations("bag", chosen) for judgement in executed(found, tmp_path, 2)]

    # Then no mode repeats, every verdict is right, and the faults are what is named.
    pairs = json.loads((tmp_path / "bag" / "investigation.json").read_text())["pairs"]
    assert not any(control["repeatable"] for pair in pairs for control in pair["controls"].values())
    assert {one.trial.name: one.verdict for one in judged if not one.exact} == {}
    assert all(one.blamed is None or one.blamed.first for one in judged)


def test_a_miss_and_a_false_alarm_are_counted() -> None:
    # Given two faults, one of them taken for rounding, and three benign variants, one of them without a verdict.
    judged = [
        judgement(benign=False, expected="beyond-rounding", verdict="beyond-rounding", score=44.0),
        judgement(benign=False, expected="different-setup", verdict="rounding", score=2.0),
        judgement(benign=True, expected="rounding", verdict="identical", score=None),
        judgement(benign=True, expected="rounding", verdict="rounding", score=3.5),
        judgement(benign=True, expected="rounding", verdict=None, score=None),
    ]

    # When they are counted.
    score = Score(judged)

    # Then half of the faults are found, and a third of the alarms is false.
    assert score.true_positive_rate == 0.5
    assert score.false_positive_rate == pytest.approx(1 / 3)
    assert not score.perfect
    assert score.smallest_fault_score("cpu") == 44.0
    assert score.benign_scores() == {"cpu": {"nothing": [0.0, 3.5]}}
    assert "tanh_backward_bf16` on tanh_sam: rounding, expected different-setup" in score.table()
    assert "on tanh_sam: undecided, expected rounding" in score.table()


def test_a_fault_without_a_verdict_is_not_found() -> None:
    undecided = judgement(benign=False, expected="beyond-rounding", verdict=None, score=None)

    assert Score([undecided]).true_positive_rate == 0.0


def test_an_infinite_score_is_read_from_its_text() -> None:
    trial = Trial(one_case("tanh_backward_bf16"), "tanh_sam", "cpu")

    judged = Judged.of(trial, {"verdict": "nonfinite", "score": "inf", "text": ["..."]}, seconds=1.0)

    assert judged.score == math.inf
    assert judged.right and not judged.exact


def test_of_several_faults_at_once_each_counts() -> None:
    # Given a trial that plants two faults, and what is named: one of them, something else, a suspect.
    planted = ({"phase": "forward", "op": "tanh"}, {"phase": "backward", "op": "tanh_backward"})
    named = [culprit("forward", "aten.tanh"), culprit("backward", "aten.mm")]
    suspect = culprit("optimizer", "aten.add_") | {"status": "suspect"}

    # When the findings are compared with it, with and without the other one.
    half = blamed({"culprits": [*named, suspect]}, planted)
    whole = blamed({"culprits": [culprit("backward", "aten.tanh_backward"), *named]}, planted)

    # Then half is found, and the site is exact only where all that was planted comes first.
    assert (len(half.found), half.planted, half.suspects, half.first) == (1, 2, 1, False)
    assert (len(whole.found), whole.first) == (2, True)
    assert not blamed({"culprits": [*named, culprit("backward", "aten.tanh_backward")]}, planted).first
    trial = judgement(benign=False, expected="beyond-rounding", verdict="beyond-rounding", score=44.0)
    rows = Score([replace(trial, blamed=found) for found in (half, whole)]).table()
    assert "| 2 | 2 | 4 | 0.750 | 5 | 0.600 | 0.500 |" in rows


def test_a_fault_that_is_named_twice_counts_once() -> None:
    found = blamed({"culprits": [culprit("forward", "aten.tanh")] * 2}, ({"phase": "forward"}, {"phase": "data"}))

    assert len(found.found) == 1


def test_a_culprit_of_another_kind_is_not_what_was_planted() -> None:
    named = [culprit("forward", "aten.addmm") | {"kind": "layout"}]

    assert blamed({"culprits": named}, ({"op": "addmm", "kind": "layout"},)).first
    assert not blamed({"culprits": named}, ({"op": "addmm", "kind": "kernel"},)).found


def culprit(phase: str, op: str) -> dict[str, Any]:
    ops = {"a": [op.removeprefix("aten.")], "b": []}
    return {
        "status": "culprit", "significance": "beyond-rounding", "phase": phase, "op": op, "ops": ops,
        "module": None, "places": [], "step": 0, "proof": {},
    }  # fmt: skip


def judgement(*, benign: bool, expected: str, verdict: str | None, score: float | None) -> Judged:
    case = one_case("nothing" if benign else "tanh_backward_bf16")
    return Judged(Trial(replace(case, expected=expected), "tanh_sam", "cpu"), verdict, score, seconds=1.0)


def one_case(name: str) -> Case:
    return next(case for case in all_cases() if case.name == name)


@pytest.mark.parametrize(
    ("more", "silent"),
    [
        ({"explained": 0.999}, False),
        ({"explained": 0.7}, True),
        ({"explained": None}, True),
        ({"explained": 0.7, "unexplained": "the causes explain 70 %; what is left ..."}, False),
        ({"explained": None, "unexplained": "no cause was looked for: step 3 has no tape"}, False),
        ({"first_differing_step": None}, False),
        ({"verdict": "different-setup"}, False),
        ({"verdict": None}, True),
    ],
)
def test_a_pair_that_differs_and_says_nothing_of_what_is_left_is_silent(more: dict[str, Any], silent: bool) -> None:
    pair = {"verdict": "rounding", "first_differing_step": 0, "text": ["..."]} | more

    assert is_silent(pair) == silent


def test_a_silent_trial_fails_the_score_and_is_named() -> None:
    right = judgement(benign=True, expected="rounding", verdict="rounding", score=2.0)
    silent = Score([right, replace(right, silent=True)])

    assert Score([right]).perfect and not silent.perfect
    assert "1 pairs differ, and neither their causes nor a sentence account for it" in silent.table()
    assert "`benign/nothing` on tanh_sam" in silent.table()


@pytest.mark.parametrize(
    ("hits", "count", "expected"),
    # the bounds are (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with z = 1.96
    [(0, 349, "0.000 to 0.011"), (434, 434, "0.991 to 1.000"), (13, 16, "0.570 to 0.934")],
)
def test_rates_have_intervals(hits: int, count: int, expected: str) -> None:
    assert interval(hits, count) == f", 95 % interval {expected}"


def test_no_trial_has_no_interval() -> None:
    assert interval(0, 0) == ""

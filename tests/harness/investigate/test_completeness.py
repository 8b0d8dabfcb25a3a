"""No pair that differs ends silent: its causes account for all of it, or a sentence says what is left, or why no cause was
looked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numdrift.harness.drift.calibration import Threshold
from numdrift.harness.drift.step_score import StepScore
from numdrift.harness.investigate.evidence.explained_scores import Scores
from numdrift.harness.investigate.evidence.pair_evidence import PairEvidence
from numdrift.harness.investigate.judging.completeness import accounted
from numdrift.harness.investigate.questions.ops import AGAINST_ONE
from numdrift.harness.investigate.questions.question import mode_culprit
from numdrift.harness.records.results.culprit import COMPILER_STAGE, MARK_STEP, Culprit, Proof, SwappedIn, SwappedOut
from numdrift.harness.records.results.findings import Verdict
from numdrift.harness.records.results.localization_record import LeftOver, Localization

ROUNDING = Verdict("rounding", "rounding: the largest drift", step=3, score=7.0)
BEYOND = Verdict("beyond-rounding", "beyond-rounding: the largest drift", step=3, score=90.0)
SCORED = Scores((StepScore(3, 7.0, "w", True, ()),), Threshold(16.0, 4.0, True, ""), "", ())
PROVEN = Culprit(
    kind="kernel",
    status="culprit",
    op="aten.sum",
    step=3,
    significance="rounding",
    proof=Proof(SwappedIn(True, 0.0, 3.0), SwappedOut(True, 7.0, 1.0, 1.0)),
)
SUSPECT = replace(
    PROVEN, status="suspect", proof=Proof(SwappedIn(), SwappedOut(), why="it cannot be swapped out by itself")
)


def evidence(**more: Any) -> PairEvidence:
    sides = {
        side: SimpleNamespace(
            manifest=SimpleNamespace(label=label, rank=more.get("rank", 0), elsewhere=""), path=Path("runs/x", label)
        )
        for side, label in (("a", "cpu"), ("b", "other"))
    }
    alone = more.get("one_against_several", False)
    return cast(PairEvidence, SimpleNamespace(**sides, one_against_several=alone))


def localized(left: LeftOver, *culprits: Culprit, **more: Any) -> Localization:
    content = {"step": 3, "score": 7.0, "controls": {"a": True, "b": True}, "left": left, "culprits": culprits}
    return Localization(Path(), content | more)


def told(one: Localization, verdict: Verdict = ROUNDING) -> tuple[float | None, str]:
    return accounted(evidence(), verdict, SCORED, [one], one.culprits)


def test_what_goes_with_its_causes_needs_no_word() -> None:
    assert told(localized(LeftOver(0.998, 0.01), PROVEN)) == (0.998, "")


def test_what_is_left_is_said_with_what_was_excluded() -> None:
    share, said = told(localized(LeftOver(0.83, 1.2, untested=("mm", "add"), blocks=4), PROVEN, SUSPECT))

    assert share == 0.83
    assert said == (
        "the causes explain 83 % of the drift of step 3; what is left (z 1.2): it may come from 4 blocks that could not "
        "be swapped (mm, add)"
    )


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (localized(LeftOver(0.0, 7.0), SUSPECT), "no cause of the drift of step 3 (z 7) is proven; a suspect has"),
        (localized(LeftOver(0.0, 7.0)), "no cause of the drift of step 3 (z 7) is proven; no op was found"),
        (localized(LeftOver(0.9, 0.7, discrete=2), PROVEN), "what is left (z 0.7 and 2 integer tensors that differ)"),
        (localized(LeftOver(why="storage 3 is made by the other"), PROVEN), "could not be swapped out together"),
        (
            localized(LeftOver(), op_by_op_differs=["w"]),
            "1 value of the step in other differs from the results of its ops",
        ),
        (localized(LeftOver()), "no op causes the difference"),
        (
            localized(LeftOver(1.0, 0.0), PROVEN, op_by_op_differs=["w", "v", "u"]),
            "but 3 values of the step in other differ from the results of its ops executed one by one (z 7 in the step itself, 7 op",
        ),
        (
            localized(LeftOver(1.0, 0.0), PROVEN, score=2.0, controls={"a": True, "b": False}),
            "the tape of other does not reproduce its recorded bits (z 7 in the step itself, 2 op by op)",
        ),
    ],
)
def test_whatever_is_not_explained_is_said(one: Localization, said: str) -> None:
    assert said in told(one)[1]


def test_what_is_left_of_a_fault_may_be_rounding() -> None:
    fault = replace(PROVEN, significance="beyond-rounding")

    assert told(localized(LeftOver(0.9, 9.0), fault), BEYOND)[1].endswith("what is left (z 9): it is within rounding")


def test_a_choice_on_its_edge_is_named() -> None:
    choices = {"score": 1.0, "discrete": 0, "flipped": 2, "ops": ["relu"]}

    said = told(localized(LeftOver(0.0, 40.0), choices=choices))[1]

    assert "2 elements of relu, next to their edges, made the opposite choice" in said


@pytest.mark.parametrize(
    ("found", "scores", "more", "said"),
    [
        ([Localization(Path(), {"step": 3, "reason": "cpu has no tape of it"})], SCORED, {}, "cpu has no tape of it"),
        ([], SCORED, {"one_against_several": True}, AGAINST_ONE),
        ([], SCORED, {"rank": 2}, "only the steps of rank 0 are taken apart"),
        (
            [],
            replace(SCORED, steps=(), why="no step was started"),
            {},
            "looked for: no step was started",
        ),
        ([], replace(SCORED, unreplayed=("step 3: all_reduce",)), {}, "looked for: step 3: all_reduce"),
        ([], SCORED, {}, "`numdrift localize runs/x/cpu runs/x/other` takes a step apart"),
        ([], replace(SCORED, steps=(StepScore(3, 0.0, "", True, ()),)), {}, "both modes compute the same bits"),
    ],
)
def test_why_no_cause_was_looked_for(
    found: list[Localization], scores: Scores, more: dict[str, Any], said: str
) -> None:
    share, text = accounted(evidence(**more), ROUNDING, scores, found, ())

    assert share is None
    assert said in text


def test_where_nothing_decides_no_cause_is_looked_for() -> None:
    undecided = Verdict(None, "undecided: the runs differ", undecided="the runs differ")

    assert "the pair is undecided" in accounted(evidence(), undecided, SCORED, [], ())[1]


def test_a_stage_of_the_compiler_is_no_op_and_says_so() -> None:
    stage = mode_culprit(
        kind=COMPILER_STAGE,
        step=3,
        name="torch.compile's stage inductor",
        before=90.0,
        after=0.0,
        threshold=16.0,
        why="",
    )

    share, said = accounted(evidence(), BEYOND, SCORED, [], [stage])

    assert share == 1.0
    assert said == "the cause of the drift is known, but not its ops (no op is proven to cause it)"


@pytest.mark.parametrize(("after", "said"), [(0.0, ""), (9.0, "without this cause, z 9 is left")])
def test_what_lazy_graphs_draw_again_is_an_op_that_is_named(after: float, said: str) -> None:
    cut = mode_culprit(
        kind=MARK_STEP, step=3, name="", before=90.0, after=after, threshold=16.0, why="", places=["drop"]
    )
    assert accounted(evidence(), BEYOND, SCORED, [], [cut]) == (1 - after / 90, said)


@pytest.mark.parametrize("word", ["identical", "different-setup", "nondeterministic", "failed"])
def test_other_verdicts_say_what_they_have_to_say(word: str) -> None:
    assert accounted(evidence(), Verdict(word, ""), SCORED, [], ()) == (None, "")

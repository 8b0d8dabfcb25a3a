"""How what is known of single causes comes back into the verdict that the scores of the steps gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from numdrift.harness.drift.calibration import Threshold
from numdrift.harness.drift.setup_difference import SetupDifference
from numdrift.harness.drift.step_score import StepScore
from numdrift.harness.drift.verdict import VerdictEvidence, decide
from numdrift.harness.investigate.evidence.explained_scores import Scores, with_explanations
from numdrift.harness.investigate.evidence.pair_evidence import PairEvidence
from numdrift.harness.investigate.judging.verdict_of_causes import (
    in_order,
    of_significant_steps,
    supported,
    unless_redrawn,
    with_causes,
    with_place,
)
from numdrift.harness.investigate.questions.ops import Ops
from numdrift.harness.records.results.culprit import REDRAWN, Culprit, Proof, SwappedIn, SwappedOut
from numdrift.harness.records.results.findings import Verdict
from numdrift.harness.records.results.localization_record import Localization

THRESHOLD = Threshold(16.0, 4.0, calibrated=True, provenance="")
PROVEN = Proof(SwappedIn(True, 0.0, 3.0), SwappedOut(True, 3.0, 0.0, 0.0))


def culprit(**more: Any) -> Culprit:
    known: dict[str, Any] = {
        "kind": "kernel",
        "status": "culprit",
        "phase": "forward",
        "op": "aten.rsqrt",
        "step": 4,
        "significance": "rounding",
        "local_significance": "rounding",
        "local_rule": "within",
        "rho": {"a": 0.1, "b": 0.2},
        "bias": {"a": 0.0, "b": -16.0},
        "bound": {"a": None, "b": None},
        "proof": PROVEN,
    }
    return Culprit(**(known | more))


def wrong(rule: str, **more: Any) -> Culprit:
    return culprit(significance="beyond-rounding", local_significance="beyond-rounding", local_rule=rule, **more)


ROUNDING = Verdict("rounding", "rounding: the largest drift", step=2, score=3.0)
BEYOND = Verdict("beyond-rounding", "beyond-rounding: the largest drift", step=2, score=90.0, first_significant_step=2)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (wrong("choice"), "computes different results from equal inputs"),
        (
            wrong("values", roundings=32.0, largest_relative=0.125),
            "moves values by up to 32 times their own rounding (0.12 of",
        ),
        (
            wrong("values", roundings=math.inf, largest_relative=0.125),
            "computes different whole numbers in 12.50% of the",
        ),
        (wrong("error", rho={"a": 0.1, "b": 130.0}), "errs in other by 130 times what rounding of its inputs causes"),
        (wrong("bias"), "errs to one side in other, by 16 standard errors"),
        (wrong("bound", bound={"a": 90.0, "b": 0.5}), "errs in cpu 90 times as much as a correct kernel"),
        (wrong("bound", bound={"a": 0.0, "b": 1e43}), "errs in other many times as much as a correct kernel"),
    ],
)
def test_what_is_wrong_by_itself_is_beyond_rounding_and_says_by_what(cause: Culprit, said: str) -> None:
    found = with_causes(ROUNDING, [culprit(), cause], "cpu", "other")
    assert (found.word, found.step, found.first_significant_step) == ("beyond-rounding", 4, 4)
    assert said in found.text and "aten.rsqrt in the forward" in found.text
    assert "3 times its rounding noise" in found.text


@pytest.mark.parametrize(
    "cause",
    [
        wrong("error", status="suspect"),  # no proof
        culprit(local_significance="beyond-rounding", local_rule="values"),  # which has no part in the drift as it is
        culprit(),
    ],
)
def test_what_is_not_proven_changes_no_verdict(cause: Culprit) -> None:
    assert with_causes(ROUNDING, [cause], "cpu", "other") == ROUNDING


def test_another_state_of_a_generator_is_another_set_up_whatever_the_score() -> None:
    drawn = culprit(
        kind="setup", significance="beyond-rounding", local_significance="different-setup", local_rule="generator"
    )
    for verdict in (ROUNDING, BEYOND):
        found = with_causes(verdict, [wrong("choice"), drawn], "cpu", "other")
        assert found.word == "different-setup" and "draws different random numbers" in found.text


@pytest.mark.parametrize(("where", "began"), [(1, 1), (2, 2), (5, 2)])
def test_a_cause_that_is_wrong_in_a_noisier_step_before_tells_where_it_begins(where: int, began: int) -> None:
    found = with_causes(BEYOND, [wrong("error", step=where)], "one", "other")
    assert (found.word, found.first_significant_step) == ("beyond-rounding", began)
    assert ("is wrong from step 1 on" in found.text) == (began == 1)


def test_a_step_before_in_which_nothing_was_wrong_is_not_told() -> None:
    before, after = culprit(step=1), wrong("error", step=2)
    assert of_significant_steps(BEYOND, [before, after]) == [after]
    assert of_significant_steps(BEYOND, [before]) == [before]
    assert of_significant_steps(ROUNDING, [before, culprit(step=9)]) == [before, culprit(step=9)]


@pytest.mark.parametrize("word", ["identical", "failed", "nondeterministic", "nonfinite", None])
def test_a_verdict_that_no_score_took_part_in_stays(word: Any) -> None:
    verdict = Verdict(word, "said")
    assert with_causes(verdict, [wrong("choice")], "cpu", "other") == verdict


def test_a_kernel_that_is_far_less_accurate_within_its_inputs_is_worth_a_look() -> None:
    found = with_causes(ROUNDING, [culprit(rho={"a": 1e-5, "b": 0.05})], "cpu", "other")
    assert (found.word, found.inspect) == ("rounding", True)
    assert "is 5e+03 times less accurate in other" in found.notes[0]
    assert not with_causes(ROUNDING, [culprit(rho={"a": 0.01, "b": 0.05})], "cpu", "other").inspect


def localization(
    step: int, *culprits: Culprit, rest: float = 0.0, controls: bool = True, apart: float = 0.0
) -> Localization:
    content = {"step": step, "culprits": list(culprits), "rest": rest, "controls": {"a": True, "b": controls}}
    if apart:
        content["control_scores"] = {"a": 0.0, "b": apart}
    return Localization(Path(), content)


def step(number: int, score: float) -> StepScore:
    return StepScore(number, score, "loss 0", True, (), replays=8, looked_closer=True)


def verdict_of(scores: Scores) -> Verdict:
    return decide(
        VerdictEvidence("cpu", "other", THRESHOLD, identical=False, first_differing_step=0, steps=scores.steps)
    )


MAGNIFIED = culprit(significance="beyond-rounding")


def test_a_drift_that_is_all_of_ill_conditioned_ops_is_rounding_and_worth_a_look() -> None:
    scores = Scores((step(0, 2.0), step(1, 100.0), step(2, 500.0), step(3, 90.0)), THRESHOLD, "", ())
    one = with_explanations(scores, [localization(1, MAGNIFIED)])
    # then the worst is still to be looked into
    assert [each.ill_conditioned for each in one.steps] == [False, True, False, False]
    assert (verdict_of(one).word, verdict_of(one).first_significant_step) == ("beyond-rounding", 2)
    # and once it is, the others are like it
    both = with_explanations(scores, [localization(1, MAGNIFIED), localization(2, MAGNIFIED)])
    assert [each.ill_conditioned for each in both.steps] == [False, True, True, True]
    found = verdict_of(both)
    assert (found.word, found.inspect, found.first_significant_step) == ("rounding", True, None)
    assert "ill-conditioned" in found.text
    assert any("step 2: ill-conditioned here: all of the drift comes from aten.rsqrt" in note for note in both.notes)
    assert both.notes[-1] == "step 3 drifts less than the worst ill-conditioned step and was not examined"


@pytest.mark.parametrize(
    "known",
    [
        localization(1, MAGNIFIED, rest=20.0),  # something is left
        localization(1, MAGNIFIED, controls=False),
        localization(1, MAGNIFIED, controls=False, apart=20.0),
        localization(1, MAGNIFIED, culprit(significance="beyond-rounding", status="suspect")),
        localization(1, MAGNIFIED, wrong("error")),
        localization(1, culprit(significance="beyond-rounding", local_rule=None)),
        localization(1, culprit()),
        localization(1),
    ],
)
def test_what_is_not_all_explained_stays_beyond_rounding(known: Localization) -> None:
    scores = with_explanations(Scores((step(1, 100.0),), THRESHOLD, "", ()), [known])
    assert verdict_of(scores).word == "beyond-rounding"


def test_a_tape_that_its_own_kernels_give_again_but_for_rounding_explains_as_much() -> None:
    scores = with_explanations(
        Scores((step(1, 100.0),), THRESHOLD, "", ()), [localization(1, MAGNIFIED, controls=False, apart=0.3)]
    )
    assert verdict_of(scores).word == "rounding"


def on_choices(*culprits: Culprit, left: float = 1.5) -> Localization:
    """A step of which the reference's choices leave little, as where signs of an optimizer or ReLUs turn."""
    choices = {"score": left, "discrete": 0, "flipped": 456, "ops": ["sign"]}
    return Localization(
        Path(), {"step": 1, "culprits": list(culprits), "rest": 0.0, "controls": {}, "choices": choices}
    )


FAR = Proof(SwappedIn(True, 0.0, 90.0), SwappedOut(True, 100.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ("causes", "word", "score"),
    [
        # a kernel that turns signs by rounding is excused
        ([culprit(significance="beyond-rounding", proof=FAR)], "rounding", 1.5),
        # another number is not, nor are the signs that it turns
        ([wrong("values", step=1, proof=FAR)], "beyond-rounding", 100.0),
        # one that makes little of the drift leaves it to the signs, and is still wrong
        ([wrong("values", step=1)], "beyond-rounding", 1.5),
        ([wrong("values", step=1, status="suspect", proof=FAR)], "rounding", 1.5),
    ],
)
def test_choices_excuse_rounding_and_nothing_that_is_wrong_by_itself(
    causes: list[Culprit], word: str, score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    localized = [on_choices(*causes)]
    monkeypatch.setattr("numdrift.harness.investigate.questions.ops.localizations", lambda evidence: localized)
    scores = with_explanations(Scores((step(1, 100.0),), THRESHOLD, "", ()), localized)
    told = Ops().answer(cast(PairEvidence, None), THRESHOLD.fault, None).culprits
    found = with_causes(verdict_of(scores), told, "cpu", "other")
    assert (found.word, found.score) == (word, score)
    assert any("456 elements of sign, next to" in note for note in scores.notes) == (score == 1.5)


def test_beside_what_is_wrong_a_kernel_that_turns_a_choice_stays_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = culprit(op="aten.sum", significance="beyond-rounding", proof=FAR)
    localized = [on_choices(turns, wrong("values", step=1, proof=FAR))]
    monkeypatch.setattr("numdrift.harness.investigate.questions.ops.localizations", lambda evidence: localized)
    told = Ops().answer(cast(PairEvidence, None), THRESHOLD.fault, None).culprits
    assert [(one.op, one.significance) for one in told] == [("aten.rsqrt", "beyond-rounding"), ("aten.sum", "rounding")]


def followed(*names: str, op: str | None = "aten.triu", step: int = 4, **more: Any) -> Culprit:
    known = {"kind": "arguments", "local_significance": "different-setup", "local_rule": "batch", "text": "it is so"}
    return culprit(batch=names, op=op, step=step, significance="beyond-rounding", **(known | more))


DIFFERS = {
    "batch": SetupDifference("batch", 3, "argument 1", "argument 1 differs"),
    "initial": SetupDifference("initial", 3, "0.weight", "`0.weight` is another"),
    "generator": SetupDifference("generator", 3, "torch", "the generator is"),
}


@pytest.mark.parametrize(
    ("kind", "cause", "is_placed"),
    [
        ("batch", followed("argument 0", "argument 1"), True),
        ("batch", followed("argument 0"), False),  # which is another one
        ("batch", followed("argument 1", status="suspect"), False),
        ("batch", culprit(significance="beyond-rounding"), False),
        ("initial", followed("argument 0", "parameter 0.weight"), True),
        ("initial", followed("argument 0"), False),
        ("generator", followed("argument 0", kind="setup"), True),
        ("generator", followed("argument 0"), False),  # no draw
        ("generator", followed("argument 0", kind="setup", op=None), False),
    ],
)
def test_a_different_set_up_names_the_place_that_makes_what_the_verdict_is_about(
    kind: str, cause: Culprit, is_placed: bool
) -> None:
    first = DIFFERS[kind]
    verdict = Verdict("different-setup", f"different-setup: {first.text}; and 1 more difference", step=3)
    found = with_place(verdict, [first], [cause])
    said = f"different-setup: {first.text}: it is so (as seen in step 4); and 1 more difference"
    assert found.text == (said if is_placed else verdict.text)
    assert with_place(ROUNDING, [], [cause]) == ROUNDING


def test_the_op_of_the_step_itself_is_told_before_data_from_outside() -> None:
    outside = followed("argument 1", op=None, kind="setup", text="from outside")
    verdict = Verdict("different-setup", "different-setup: argument 1 differs", step=3)
    found = with_place(verdict, [DIFFERS["batch"]], [outside, followed("argument 1", step=3)])
    assert found.text == "different-setup: argument 1 differs: it is so"


def test_a_draw_that_one_mode_makes_alone_stands_before_what_draws_otherwise_for_it() -> None:
    op = followed("argument 1", step=0)
    extra = Culprit(kind="setup", phase="setup", what="generator", name="torch", significance="beyond-rounding")
    assert in_order([op, extra]) == [extra, op] == in_order([extra, op])


def test_what_was_there_before_a_step_goes_where_the_preparation_tells_more() -> None:
    before, op = followed("argument 1", op=None, kind="setup"), followed("argument 1", "argument 2", step=0)
    assert in_order([before, op]) == [op]
    assert in_order([before, followed("argument 2", step=0)])[0] == before
    assert in_order([before, followed("argument 1")])[0] == before  # another op of the same step


@pytest.mark.parametrize(
    ("word", "kinds", "reasons", "expected"),
    [
        ("different-setup", ("generator",), (REDRAWN,), "beyond-rounding"),
        # the learning rate differs, too: the draws are not all that the modes do not share
        ("different-setup", ("generator", "hyper-parameter"), (REDRAWN,), "different-setup"),
        ("different-setup", ("generator",), ("native_dropout against bernoulli_",), "different-setup"),
        ("rounding", ("generator",), (REDRAWN,), "rounding"),
    ],
)
def test_a_compiled_backward_that_draws_anew_is_no_other_setup(
    word: str, kinds: Sequence[str], reasons: Sequence[str], expected: str
) -> None:
    setup = [SetupDifference(kind, 3, "torch", "the draws differ") for kind in kinds]
    drawing = culprit(kind="structure", op="aten.native_dropout", step=3, reasons=list(reasons))
    verdict = unless_redrawn(Verdict(word, f"{word}: the draws differ"), setup, [drawing])
    assert verdict.word == expected
    if expected == "beyond-rounding":
        assert verdict.first_significant_step == 3
        assert "native_dropout" in verdict.text and REDRAWN in verdict.text


@pytest.mark.parametrize(
    ("closer", "rho", "relative", "word"),
    [
        ("b", {"a": 0.1, "b": 600.0}, 0.003, "rounding"),  # the kernel is said to err where the whole step does not
        ("b", {"a": 600.0, "b": 0.1}, 0.003, "beyond-rounding"),
        ("a", {"a": 0.1, "b": 600.0}, 0.003, "beyond-rounding"),
        (None, {"a": 0.1, "b": 600.0}, 0.003, "beyond-rounding"),
        ("b", {"a": 0.0, "b": 0.2}, 0.26, "beyond-rounding"),  # no rounding to a shorter format is as large as that
    ],
)
def test_a_kernel_that_the_step_in_double_contradicts_does_not_change_the_verdict(
    closer: str | None, rho: dict[str, float], relative: float, word: str
) -> None:
    verdict = Verdict("rounding", "rounding: 0.9 times the noise", score=0.9)
    causes = [wrong("error", rho=rho, largest_relative=relative)]
    assert with_causes(verdict, supported(verdict, causes, closer), "cpu", "compile").word == word


@pytest.mark.parametrize(
    ("op", "reason", "is_named"),
    [
        ("aten.native_dropout", "only the other mode executes native_dropout", True),
        ("aten.native_dropout", "native_dropout against bernoulli_", False),
        ("aten.mul", "only the other mode executes mul", False),
    ],
)
def test_an_op_that_only_one_mode_draws_by_is_named(op: str, reason: str, is_named: bool) -> None:
    setup = [SetupDifference("generator", 0, "torch", "the draws differ")]
    cause = culprit(kind="structure", op=op, step=0, source="train.py:13", reasons=[reason])
    placed = with_place(Verdict("different-setup", "different-setup: the draws differ; use one seed"), setup, [cause])
    named = f"different-setup: the draws differ: {reason} (train.py:13); use one seed"
    assert (placed.text == named) is is_named

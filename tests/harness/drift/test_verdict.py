from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.calibration import Threshold
from numdrift.harness.drift.nonfinite import Nonfinite, NonfiniteValue
from numdrift.harness.drift.referee_accuracy import Accuracy
from numdrift.harness.drift.repetition import Repetition
from numdrift.harness.drift.setup_difference import SetupDifference
from numdrift.harness.drift.step_score import StepScore
from numdrift.harness.drift.verdict import VerdictEvidence, decide, unless_contradicted, worst_of
from numdrift.harness.records.results.findings import TensorScore

THRESHOLD = Threshold(16.0, 4.0, True, "a study")


def scored(step: int, score: float, **fields: Any) -> StepScore:
    tensor = "" if score == 0 else "gradient 0 net.0.weight"
    known: dict[str, Any] = {"taped": True, "tensors": (), "replays": 8}
    return StepScore(step, score, tensor, **{**known, **fields})


DIFFERING = VerdictEvidence("cpu", "compile", THRESHOLD, identical=False, first_differing_step=0)
IDENTICAL = replace(DIFFERING, identical=True, first_differing_step=None)
NAN = NonfiniteValue(2, "loss", "loss 0", "NaN")

FAILED = {"failed": ("compile has the status crashed: no memory",)}
NONDETERMINISTIC = {
    "repetitions": (
        Repetition(True),
        Repetition(False, 3, "loss 0", "loss", "cpu does not repeat: loss 0 of step 3 differs", "run with threads=1"),
    )
}  # fmt: skip
SETUP = {"setup": (SetupDifference("hyper-parameter", 1, "lr", "lr 0.1 against 0.2"),)}
NONFINITE = {"nonfinite": Nonfinite(None, NAN, NAN, True, "step 2: loss 0 contains NaN only in compile")}
BEYOND = {"steps": (scored(0, 2.0), scored(4, 20.0), scored(5, 100.0))}
ROUNDING = {"steps": (scored(0, 2.6), scored(4, 1.0))}

IN_ORDER = [
    ("failed", FAILED),
    ("nondeterministic", NONDETERMINISTIC),
    ("different-setup", SETUP),
    ("nonfinite", NONFINITE),
    ("beyond-rounding", BEYOND),
    ("rounding", ROUNDING),
]


@pytest.mark.parametrize("place", range(len(IN_ORDER)))
def test_what_voids_a_comparison_comes_first(place: int) -> None:
    # given one kind of evidence together with all that comes after it
    evidence = DIFFERING
    for _, fields in reversed(IN_ORDER[place:]):
        evidence = replace(evidence, **fields)  # type: ignore[arg-type]
    # then
    word = decide(evidence).word
    assert word == IN_ORDER[place][0]
    assert decide(evidence).text.startswith(f"{word}: ")


@pytest.mark.parametrize("fields", [FAILED, NONDETERMINISTIC, SETUP, NONFINITE])
def test_the_same_bits_do_not_outweigh_a_void_comparison(fields: dict[str, Any]) -> None:
    assert decide(replace(IDENTICAL, **fields)).word != "identical"


def test_identical() -> None:
    verdict = decide(IDENTICAL)
    assert (verdict.word, verdict.score, verdict.step, verdict.undecided) == ("identical", None, None, "")


def test_another_script_without_any_effect_leaves_runs_identical() -> None:
    script = SetupDifference("script", 0, "script", "the runs executed different scripts")
    verdict = decide(replace(IDENTICAL, setup=(script,)))
    assert verdict.word == "identical"
    assert verdict.notes == ("the runs executed different scripts",)
    assert decide(replace(DIFFERING, setup=(script,))).word == "different-setup"


def test_rounding_is_a_sentence() -> None:
    verdict = decide(replace(DIFFERING, **ROUNDING))  # type: ignore[arg-type]
    assert verdict.text == (
        "rounding: the largest drift of 2 steps is 2.6 times the reference's own rounding noise "
        "(gradient 0 net.0.weight, step 0; 16 would be a fault)"
    )
    assert (verdict.score, verdict.tensor, verdict.step) == (2.6, "gradient 0 net.0.weight", 0)
    assert (verdict.first_significant_step, verdict.inspect, verdict.notes) == (None, False, ())


def test_beyond_rounding_names_the_worst_and_the_first_step() -> None:
    verdict = decide(replace(DIFFERING, **BEYOND))  # type: ignore[arg-type]
    assert verdict.text == (
        "beyond-rounding: the largest drift of 3 steps is 100 times the reference's own rounding noise "
        "(gradient 0 net.0.weight, step 5), and more than 16 is a fault; the first such step is 4"
    )
    assert (verdict.score, verdict.step, verdict.first_significant_step) == (100.0, 4, 4)


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=6))
def test_the_largest_score_decides(scores: list[float]) -> None:
    verdict = decide(replace(DIFFERING, steps=tuple(scored(n, one) for n, one in enumerate(scores))))
    beyond = [n for n, one in enumerate(scores) if one > 16]
    assert verdict.word == ("beyond-rounding" if beyond else "rounding")
    assert verdict.score == max(scores) == worst_of([scored(0, one) for one in scores])
    assert verdict.first_significant_step == (beyond[0] if beyond else None)
    assert verdict.inspect == (4 < max(scores) <= 16)


def test_the_order_of_the_steps_does_not_matter() -> None:
    steps = (scored(5, 100.0), scored(4, 20.0), scored(0, 100.0))
    found = [decide(replace(DIFFERING, steps=order)) for order in (steps, steps[::-1])]
    assert found[0] == found[1]
    assert found[0].first_significant_step == 0


def test_a_score_without_a_distance_is_explained() -> None:
    name = "gradient 0 net.0.weight"
    tensor = TensorScore(name, math.inf, math.inf, 0, 0, "only the reference has it")
    verdict = decide(replace(DIFFERING, steps=(scored(1, math.inf, tensors=(tensor,)),)))
    assert verdict.text == (
        "beyond-rounding: the drift of the one step that was scored is beyond any rounding (gradient 0 net.0.weight, "
        "step 1: only the reference has it), and more than 16 is a fault; the first such step is 1"
    )


def test_integers_alone_are_a_fault() -> None:
    verdict = decide(replace(DIFFERING, steps=(scored(0, 1.0), scored(2, 0.0, discrete=("buffer n",)))))
    assert (verdict.word, verdict.score, verdict.first_significant_step) == ("beyond-rounding", 1.0, 2)
    assert verdict.text == "beyond-rounding: integers differ, although rounding never changes them (buffer n, step 2)"
    assert worst_of([scored(2, 0.0, discrete=("buffer n",))]) == math.inf


@pytest.mark.parametrize("kind", ["follows", "harmless"])
def test_what_follows_or_is_harmless_is_no_setup(kind: str) -> None:
    fields: dict[str, Any] = {"follows": True} if kind == "follows" else {"harmless": "rounding"}
    one = SetupDifference("initial", 0, "w", "`w` starts from different values", **fields)
    verdict = decide(replace(DIFFERING, setup=(one,), **ROUNDING))  # type: ignore[arg-type]
    assert verdict.word == "rounding"
    assert verdict.notes == (() if kind == "follows" else ("`w` starts from different values (rounding)",))


def test_different_draws_have_a_remedy_and_the_rest_is_counted() -> None:
    setup = (
        SetupDifference("generator", 1, "torch", "the modes draw different random numbers in step 0"),
        SetupDifference("batch", 2, "argument 0", "the batch of step 2 differs", follows=True),
        *SETUP["setup"],
    )
    verdict = decide(replace(DIFFERING, setup=setup))
    start = "different-setup: the modes draw different random numbers in step 0; and 1 more difference; "
    assert verdict.step == 1
    assert verdict.text == f"{start}use the same seeds in both and make both draw equally often"


def test_a_loss_that_is_nan_in_both_runs_is_nonfinite_even_where_all_bits_agree() -> None:
    both = Nonfinite(NAN, NAN, None, False, "step 2: loss 0 contains NaN in both runs", loss=NAN)
    verdict = decide(replace(IDENTICAL, nonfinite=both))
    assert (verdict.word, verdict.step) == ("nonfinite", 2)


def test_a_fault_before_the_first_nan_is_what_begins() -> None:
    # given a NaN at step 2, and scored steps before it and at it
    before, at = scored(0, 100.0), scored(2, float("inf"))
    verdict = decide(replace(DIFFERING, **NONFINITE, steps=(before, at)))  # type: ignore[arg-type]
    assert (verdict.word, verdict.step, verdict.first_significant_step) == ("beyond-rounding", 0, 0)
    assert verdict.text.endswith("; afterwards, in step 2: loss 0 contains NaN only in compile")
    assert all("NaN" not in note for note in verdict.notes)
    # otherwise the NaN is what is known
    for steps in ((at,), (scored(0, 1.0), at), (scored(0, 1.0),)):
        assert decide(replace(DIFFERING, **NONFINITE, steps=steps)).word == "nonfinite"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("closer", "times", "undecided"),
    [("a", 4.3e5, True), ("b", 4.3e5, True), ("a", 59.0, False), ("equal", 4.3e5, False), (None, 0.0, False)],
)
def test_rounding_does_not_leave_one_side_far_from_double(closer: str | None, times: float, undecided: bool) -> None:
    # given a drift within the noise, and a side that is farther from double
    rounding = decide(replace(DIFFERING, **ROUNDING))  # type: ignore[arg-type]
    median = math.log2(times or 1.0) * (-1 if closer == "b" else 1)
    referee = None if closer is None else Accuracy(closer, median, 20, 1e-6, False, "")
    verdict = unless_contradicted(rounding, referee, "cpu", "compile")
    assert (verdict.word is None) == undecided
    if undecided:
        worse, better = ("compile", "cpu") if closer == "a" else ("cpu", "compile")
        assert f"the typical error of {worse} is 4.3e+05 times that of {better}" in verdict.undecided
        assert verdict.score == rounding.score and "localize --step" in verdict.undecided
    else:
        assert verdict is rounding
    # nothing else is called in question
    beyond = decide(replace(DIFFERING, **BEYOND))  # type: ignore[arg-type]
    assert unless_contradicted(beyond, referee, "cpu", "compile") is beyond


def test_nans_of_both_runs_alike_are_no_drift() -> None:
    both = Nonfinite(NAN, NAN, None, False, "step 2: loss 0 contains NaN in both runs")
    verdict = decide(replace(IDENTICAL, nonfinite=both))
    assert verdict.word == "identical"
    assert verdict.notes == ("step 2: loss 0 contains NaN in both runs",)


def test_without_a_score_there_is_no_word() -> None:
    verdict = decide(replace(DIFFERING, first_differing_step=3, unscored="its states were not kept"))
    assert (verdict.word, verdict.step, verdict.score) == (None, 3, None)
    assert verdict.undecided.startswith("the runs differ from step 3 on, and its states were not kept: run `numdrift")
    assert verdict.text == f"undecided: {verdict.undecided}"


@pytest.mark.parametrize(
    ("score", "discrete", "word"),
    [
        (3.0, (), "rounding"),
        (100.0, (), None),
        (math.inf, (), "beyond-rounding"),
        (0.5, ("buffer n",), "rounding"),
    ],
)
def test_without_measured_noise_a_large_score_decides_nothing(
    score: float, discrete: tuple[str, ...], word: str | None
) -> None:
    # given a score in units of the results' own rounding, which is an upper bound
    step = scored(0, score, taped=False, replays=0, discrete=discrete)
    # then
    verdict = decide(replace(DIFFERING, steps=(step,)))
    assert verdict.word == word
    assert bool(verdict.undecided) == (word is None)


def test_steps_that_agree_from_one_state_explain_no_difference() -> None:
    # given runs that differ from step 0 on, though no step does
    evidence = replace(DIFFERING, steps=(scored(0, 0.0), scored(4, 0.0)))
    assert "look for other state that the script carries" in decide(evidence).undecided
    assert "(--steps 3)" in decide(replace(evidence, first_differing_step=3)).undecided
    # when they start a few ULP apart
    apart = SetupDifference("initial", 0, "w", "`w` starts from different values", harmless="rounding")
    verdict = decide(replace(evidence, setup=(apart,)))
    # then that is all
    assert verdict.word == "rounding"
    assert "start a few ULP apart" in verdict.text


def test_notes_on_noise_and_threshold() -> None:
    # given a threshold that was found elsewhere, and a fault seen with the noise of another step
    evidence = replace(
        DIFFERING,
        threshold=Threshold(16.0, 4.0, False, "not calibrated for lazy"),
        steps=(scored(0, 1.0), scored(4, 100.0, taped=False)),
    )
    # then
    assert decide(evidence).notes == (
        "the noise of the steps beyond the threshold was not measured on their tapes",
        "the threshold 16 is not calibrated for lazy",
    )


def test_a_script_that_starts_from_no_state_is_undecided_without_a_command() -> None:
    verdict = decide(
        replace(
            DIFFERING,
            steps=(),
            stateless="no step of this script can be started from another run's state: why",
        )
    )
    assert verdict.word is None
    assert verdict.undecided.endswith("and no step of this script can be started from another run's state: why")
    assert "numdrift investigate" not in verdict.text


def test_what_recording_of_the_ops_moves_is_rounding() -> None:
    # given a step in which the recorded reference has the bits of the other mode
    equal = replace(DIFFERING, steps=(scored(0, 0.0),))
    assert decide(equal).word is None
    assert decide(replace(equal, recording=0.5)).word == "rounding"
    # but not if recording moves the results by more than rounding
    assert decide(replace(equal, recording=THRESHOLD.fault * 2)).word is None

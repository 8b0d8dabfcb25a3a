"""The findings on a pair, from runs and experiments that are written by hand: nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import Step, X

from numdrift.harness.investigate.judge import judge, judge_pairs
from numdrift.harness.records.culprit import Culprit
from numdrift.harness.records.experiment import Experiment
from numdrift.harness.records.findings import PairFindings
from numdrift.harness.records.step_files import STATE
from numdrift.harness.runs.recorded_run import RecordedRun

from .written_evidence import (
    AGAIN,
    COUNT,
    FAULT,
    FORCED,
    INSPECT,
    MODE_AGAIN,
    UNREPLAYED,
    Event,
    Outcome,
    Study,
    changed,
    compared_study,
    noise_record,
    resynced,
    training,
)

ULP = 2.0**-23
"""The distance of 1.0 to the next float32: two roundings of a loss of 1."""

BEYOND: Mapping[int, float] = {0: 0.5, 1: 2.0, 2: 40.0, 3: 90.0, 4: 1.0}
"""Scores of a fault that shows in steps 2 and 3."""

HARMLESS: Mapping[int, float] = {0: 0.5, 1: 2.0, 2: 3.0, 3: 1.0, 4: 0.25}

MANY = {**HARMLESS, 2: 40.0}

KERNEL: Mapping[str, Any] = {
    "kind": "kernel",
    "status": "culprit",
    "op": "aten.mm",
    "phase": "forward",
    "proof": {
        "swap_in": {"holds": True, "score_before": 0.0, "score_after": 90.0},
        "swap_out": {"holds": True, "score_before": 90.0, "score_after": 0.0, "score_without_all": 0.0},
    },
}

WRONG: Mapping[str, Any] = {
    **KERNEL,
    "significance": "beyond-rounding",
    "local_significance": "beyond-rounding",
    "local_rule": "error",
    "rho": {"a": 0.5, "b": 900.0},
}


def only_pair(runs: Sequence[RecordedRun], step: int | None = None) -> PairFindings:
    (pair,) = judge(runs, step).pairs
    return pair


def in_text(pair: PairFindings, *fragments: str) -> bool:
    return all(fragment in "\n".join(pair.text) for fragment in fragments)


def in_notes(pair: PairFindings, *fragments: str) -> bool:
    return all(any(fragment in note for note in pair.notes) for fragment in fragments)


def culprits(*contents: Mapping[str, Any]) -> list[Culprit]:
    return [Culprit.from_json(content) for content in contents]


def test_equal_runs_are_identical_without_any_experiment(tmp_path: Path) -> None:
    study = Study(tmp_path)
    pair = only_pair([study.run("cpu", training()), study.run("compile", training())])
    assert (pair.verdict, pair.exit_code, pair.score, pair.first_differing_step) == ("identical", 0, None, None)
    assert pair.text == ["identical: all that cpu and compile recorded has the same bits"]
    assert (pair.undecided, pair.unexplained, pair.steps, pair.controls, pair.runs_used) == ("", "", [], {}, 2)


def test_equal_runs_stay_identical_after_an_investigation(tmp_path: Path) -> None:
    # given scores of 0 in every step, and no noise
    _, runs = compared_study(tmp_path, {}, noises=[], free=training())
    pair = only_pair(runs)
    assert (pair.verdict, pair.first_significant_step, pair.runs_used) == ("identical", None, 5)
    assert pair.controls["cpu"]["repeatable"] and pair.controls["compile"]["repeatable"]


@pytest.mark.parametrize(
    ("scores", "word", "significant", "score", "inspect", "sentence"),
    [
        (HARMLESS, "rounding", None, 3.0, False, "of 5 steps is 3 times the reference's own rounding noise"),
        ({1: 3.0}, "rounding", None, 3.0, False, "of the one step that was scored is 3 times"),
        ({1: INSPECT * 0.98}, "rounding", None, INSPECT * 0.98, False, "would be a fault)"),
        ({1: INSPECT * 1.02}, "rounding", None, INSPECT * 1.02, True, "is worth a look)"),
        ({1: FAULT * 0.98}, "rounding", None, FAULT * 0.98, True, "would be a fault, and more than"),
        ({1: FAULT * 1.02}, "beyond-rounding", 1, FAULT * 1.02, False, "the first such step is 1"),
        (BEYOND, "beyond-rounding", 2, 90.0, False, "(loss 0, step 3), and more than 21.1 is a fault; the first such"),
        ({0: 1.0, 3: Outcome(loss=math.nan)}, "beyond-rounding", 3, math.inf, False, "beyond any rounding"),
        (
            {0: 1.0, 3: Outcome(1.0, counter=7)},
            "beyond-rounding",
            3,
            1.0,
            False,
            "integers differ that rounding leaves",
        ),
    ],
)
def test_the_scores_of_the_steps_decide(
    tmp_path: Path,
    scores: Mapping[int, float | Outcome],
    word: str,
    significant: int | None,
    score: float,
    inspect: bool,
    sentence: str,
) -> None:
    _, runs = compared_study(tmp_path, scores)
    pair = only_pair(runs)
    assert (pair.verdict, pair.first_significant_step, pair.inspect) == (word, significant, inspect)
    assert pair.score == pytest.approx(score, rel=1e-3)
    assert (pair.threshold, pair.calibrated, pair.first_differing_step) == (FAULT, True, 1)
    assert sentence in pair.text[0]
    assert pair.exit_code == (word == "beyond-rounding")
    # and whatever it is, it is about the steps that were scored, whose noise is that of the tape of step 0
    assert [step.step for step in pair.steps] == sorted(scores)
    assert [step.step for step in pair.steps if step.taped] == [step for step in scores if step == 0]
    assert pair.noise == "8 replays with random rounding of the tape of step 0"
    assert in_text(pair, "the losses differ from step 1 on, by at most 1e-07 of their value (step 1)")
    assert in_text(pair, "that alone says nothing, as training magnifies rounding") == (word == "rounding")
    assert in_notes(pair, "was not measured on tapes of theirs") == (word == "beyond-rounding")


@pytest.mark.parametrize("flips", [0, 2])
def test_integers_that_rounding_changes_as_well_are_no_fault(tmp_path: Path, flips: int) -> None:
    _, runs = compared_study(tmp_path, {0: Outcome(1.0, counter=7)}, noises=[noise_record(0, flips=flips)])
    assert only_pair(runs).verdict == ("rounding" if flips else "beyond-rounding")


def test_each_step_has_the_noise_of_its_own_tape_or_of_the_nearest(tmp_path: Path) -> None:
    # given that rounding moves the loss of step 4 by ten times as much
    louder = noise_record(4)
    louder["tensors"]["loss 0"]["rms"] *= 10
    _, runs = compared_study(tmp_path, {0: 30.0, 1: 30.0, 3: 30.0, 4: 30.0}, noises=[noise_record(0), louder])
    pair = only_pair(runs)
    assert [step.score for step in pair.steps] == pytest.approx([30.0, 30.0, 3.0, 3.0], rel=1e-3)
    assert [step.taped for step in pair.steps] == [True, False, False, True]
    assert pair.noise == "8 replays with random rounding of the tape of step 0, 4"


def test_losses_that_stay_equal_are_reported_as_such(tmp_path: Path) -> None:
    free = changed(training(), 1, gradients={"w": [0.1, 0.3]})
    _, runs = compared_study(tmp_path, HARMLESS, free=free)
    pair = only_pair(runs)
    assert (pair.verdict, pair.first_differing_step) == ("rounding", 1)
    assert pair.text[1] == "the losses are the same bits at every step"


Arrange = Callable[[Path], Sequence[RecordedRun]]


def not_repeating(side: str) -> Arrange:
    """A mode whose repetition has another loss in step 2, where the drift is beyond rounding as well."""
    apart_from = 1 if side == "mode_control" else None
    control = {side: changed(training(apart_from=apart_from), 2, losses=(3.0,))}
    return lambda folder: compared_study(folder, BEYOND, **control)[1]


def ended(status: str, count: int, **more: Any) -> Arrange:
    """A mode that has ended early."""

    def arrange(folder: Path) -> Sequence[RecordedRun]:
        study = Study(folder)
        free = training(apart_from=1)[:count]
        return [study.run("cpu", training()), study.run("compile", free, status=status, message="no reason", **more)]

    return arrange


def failed_experiment(experiment: Experiment, count: int) -> Arrange:
    """Equal runs of which an experiment failed."""

    def arrange(folder: Path) -> Sequence[RecordedRun]:
        study = Study(folder)
        runs = [study.run("cpu", training()), study.run("compile", training())]
        study.make(experiment, training(count), status="crashed", message="no reason")
        return runs

    return arrange


def differing(**fields: Any) -> Arrange:
    """A mode with other inputs from step 2 on, where it drifts beyond rounding."""
    return lambda folder: compared_study(folder, BEYOND, free=changed(training(apart_from=3), 2, **fields))[1]


def longer(folder: Path) -> Sequence[RecordedRun]:
    return compared_study(folder, BEYOND, free=training(COUNT + 1, apart_from=1))[1]


def other_script(folder: Path) -> Sequence[RecordedRun]:
    study = Study(folder)
    return [study.run("cpu", training()), study.run("compile", training(apart_from=1), script_sha256="1")]


def another_seed(folder: Path) -> Sequence[RecordedRun]:
    def drawn(seed: str, loss: float) -> list[Step]:
        return [Step(losses=(loss,), generators={"torch": f"{seed}{number}"}) for number in range(COUNT)]

    study = Study(folder)
    return [study.run("cpu", drawn("a", 1.0)), study.run("compile", drawn("b", 2.0))]


@pytest.mark.parametrize(
    ("arrange", "word", "code", "first", "fragments"),
    [
        (
            not_repeating("control"),
            "nondeterministic",
            1,
            1,
            ["cpu does not repeat: loss 0 of step 2 differs", "threads=1"],
        ),
        (
            not_repeating("mode_control"),
            "nondeterministic",
            1,
            1,
            ["compile does not repeat: loss 0 of step 2 differs"],
        ),
        (ended("crashed", 2), "failed", 3, 1, ["failed: compile crashed after 2 steps: no reason"]),
        (ended("crashed", 0), "failed", 3, None, ["failed: compile crashed after 0 steps: no reason"]),
        (ended("killed", 2), "failed", 3, 1, ["compile was killed after 2 steps"]),
        (ended("timeout", 2), "failed", 3, 1, ["compile ran out of time after 2 steps"]),
        (ended("out-of-memory", 2), "failed", 3, 1, ["compile ran out of memory after 2 steps"]),
        (failed_experiment(AGAIN, 3), "failed", 3, None, ["failed: the repetition of cpu crashed after 3 steps"]),
        (failed_experiment(MODE_AGAIN, 3), "failed", 3, None, ["the repetition of compile crashed after 3 steps"]),
        (failed_experiment(FORCED, 3), "failed", 3, None, ["the second training of compile crashed after 3 steps"]),
        (differing(losses=(math.nan,)), "nonfinite", 1, 2, ["step 2: the loss 0 holds NaN in compile alone"]),
        (differing(losses=(math.inf,)), "nonfinite", 1, 2, ["the loss 0 holds infinity in compile alone"]),
        (
            differing(gradients={"w": [math.nan, 1.0]}),
            "nonfinite",
            1,
            2,
            ["step 2: the gradient of `w` holds NaN in compile alone"],
        ),
        (
            differing(batches=((X, ("int64", (4,), "cc")),)),
            "different-setup",
            1,
            3,
            ["different-setup: ", "batch"],
        ),
        (longer, "different-setup", 1, 1, ["different-setup: 5 against 6 steps"]),
        (other_script, "different-setup", 1, 1, ["different-setup: the runs are of different scripts"]),
        (another_seed, "different-setup", 1, 0, ["torch's generator is at another state before step 0", "seeds"]),
    ],
)
def test_what_makes_a_comparison_void_comes_before_every_score(
    tmp_path: Path, arrange: Arrange, word: str, code: int, first: int | None, fragments: Sequence[str]
) -> None:
    findings = judge(arrange(tmp_path))
    (pair,) = findings.pairs
    assert (pair.verdict, pair.exit_code, findings.exit_code, pair.first_differing_step) == (word, code, code, first)
    assert pair.text[0].startswith(f"{word}: ")
    assert in_text(pair, *fragments)
    assert pair.explained is None and pair.undecided == ""
    assert not in_text(pair, "the losses differ") or word != "nonfinite"


CRASHED: Mapping[str, Any] = {"status": "crashed", "message": "no reason"}
UNREPEATED: Mapping[str, Any] = {"control": changed(training(), 3, losses=(9.0,))}
OTHER_SCRIPT: Mapping[str, Any] = {"script_sha256": "1"}
NOT_FINITE: Mapping[str, Any] = {"free": changed(training(apart_from=1), 2, losses=(math.nan,))}


@pytest.mark.parametrize(
    ("troubles", "word"),
    [
        ([CRASHED, UNREPEATED, OTHER_SCRIPT, NOT_FINITE], "failed"),
        ([UNREPEATED, OTHER_SCRIPT, NOT_FINITE], "nondeterministic"),
        ([OTHER_SCRIPT, NOT_FINITE], "different-setup"),
        ([NOT_FINITE], "nonfinite"),
        ([], "beyond-rounding"),
    ],
)
def test_of_several_troubles_the_one_that_makes_void_the_others_is_the_verdict(
    tmp_path: Path, troubles: Sequence[Mapping[str, Any]], word: str
) -> None:
    arranged: dict[str, Any] = {}
    for trouble in troubles:
        arranged |= trouble
    _, runs = compared_study(tmp_path, BEYOND, **arranged)
    pair = only_pair(runs)
    assert pair.verdict == word
    # and what was measured is in the findings whatever the word
    assert (pair.score, pair.first_significant_step) == (pytest.approx(90.0, rel=1e-3), 2)
    others = {"of different scripts": OTHER_SCRIPT in troubles, "holds NaN": NOT_FINITE in troubles}
    for fragment, is_there in others.items():
        assert (fragment in pair.text[0] or in_notes(pair, fragment)) == is_there


def test_a_run_that_ends_with_a_loss_that_is_not_finite_has_not_failed(tmp_path: Path) -> None:
    free = changed(training(apart_from=1), 2, losses=(math.nan,))
    _, runs = compared_study(tmp_path, BEYOND, free=free, status="nonfinite", message="the loss is NaN")
    assert only_pair(runs).verdict == "nonfinite"


def test_both_runs_that_go_wrong_alike_are_not_finite(tmp_path: Path) -> None:
    steps = changed(training(), 2, losses=(math.nan,))
    free = changed(steps, 1, gradients={"w": [0.1, 0.3]})
    _, runs = compared_study(tmp_path, HARMLESS, reference=steps, free=free)
    assert in_text(only_pair(runs), "nonfinite: step 2: the loss 0 holds NaN in both runs alike")


def test_a_failure_is_told_once(tmp_path: Path) -> None:
    # given a crash after some steps, whose message the comparison notes as well
    pair = only_pair(ended("crashed", 2)(tmp_path))
    assert not in_notes(pair, "no reason")
    # and of a mode that has not begun there is nothing but the failure
    assert only_pair(ended("crashed", 0)(tmp_path / "none")).text == [
        "failed: compile crashed after 0 steps: no reason"
    ]


def test_a_differing_batch_is_a_culprit_of_the_set_up(tmp_path: Path) -> None:
    pair = only_pair(differing(batches=((X, ("int64", (4,), "cc")),))(tmp_path))
    (culprit,) = pair.culprits
    assert (culprit.kind, culprit.what, culprit.step, culprit.significance) == ("setup", "batch", 2, "beyond-rounding")
    assert culprit.text is not None and culprit.text in pair.text[0]


def test_every_difference_of_the_set_up_is_told_and_is_a_culprit(tmp_path: Path) -> None:
    study = Study(tmp_path)
    runs = [study.run("cpu", training()), study.run("compile", training(4, apart_from=1), arguments=["--lr", "1"])]
    pair = only_pair(runs)
    assert "the script's arguments are (none) against --lr 1; and 1 more difference" not in pair.text[0]
    assert [culprit.what for culprit in pair.culprits] == ["arguments"]


@pytest.mark.parametrize(
    ("begun", "count", "word"),
    [
        ((1, COUNT - 1), COUNT, "rounding"),
        ((1, COUNT - 1), COUNT + 1, "different-setup"),
        ((1,), COUNT, "different-setup"),
    ],
)
def test_a_length_that_follows_the_state_is_no_other_set_up(
    tmp_path: Path, begun: Sequence[int], count: int, word: str
) -> None:
    # given a mode with a step more, which ends with the reference where its last common step begins in that state
    study = Study(tmp_path)
    free = training(COUNT + 1, apart_from=1)
    runs = [study.run("cpu", training()), study.run("compile", free)]
    study.make(AGAIN, training(), dict.fromkeys(begun, Outcome()), noises=[noise_record(1)])
    study.make(FORCED, free[:count], dict.fromkeys(begun, Outcome(2.0)), events=resynced(begun))
    pair = only_pair(runs)
    assert pair.verdict == word
    assert in_text(pair, "the script ends by what it computes, after 5 steps in cpu and 6 in compile") == (
        word == "rounding"
    )


@pytest.mark.parametrize(("repeats", "word"), [(True, "rounding"), (False, "nondeterministic")])
def test_one_training_is_the_control_of_the_steps_that_are_its_own(tmp_path: Path, repeats: bool, word: str) -> None:
    # given a training that begins step 1 and 3 in the reference's state, where it has other losses, and rejoins itself
    study = Study(tmp_path)
    runs = [study.run("cpu", training()), study.run("compile", training(apart_from=1))]
    study.make(AGAIN, training(), dict.fromkeys((1, 3), Outcome()), noises=[noise_record(1)])
    steps = training(apart_from=1)
    steps[1] = steps[3] = Step(losses=(7.0,))
    steps[4] = steps[4] if repeats else Step(losses=(7.0,))
    events = [*resynced([1, 3]), *({"event": "rejoined", "step": step} for step in (2, 4))]
    study.make(FORCED, steps, dict.fromkeys((1, 3), Outcome(2.0)), events=events)
    pair = only_pair(runs)
    assert (pair.verdict, pair.controls["compile"]["repeatable"]) == (word, repeats)
    assert repeats or in_text(pair, "compile does not repeat: loss 0 of step 4 differs")


def free_runs(folder: Path) -> Sequence[RecordedRun]:
    study = Study(folder)
    return [study.run("cpu", training()), study.run("compile", training(apart_from=1))]


def stateless(folder: Path) -> Sequence[RecordedRun]:
    runs = free_runs(folder)
    study = Study(folder, {"cpu": "cpu"})
    study.make(AGAIN, training(), notices=[f"{STATE} is not available: its optimizer has no state_dict"])
    return runs


def scored(scores: Mapping[int, float | Outcome], *noises: Event) -> Arrange:
    return lambda folder: compared_study(folder, scores, noises=noises)[1]


NOTHING_MEASURED = noise_record(0, **UNREPLAYED)


@pytest.mark.parametrize(
    ("arrange", "word", "significant", "score", "fragments"),
    [
        (
            free_runs,
            None,
            None,
            None,
            ["the runs differ from step 1 on, and no step of it was started", "run `numdrift investigate", "one state"],
        ),
        (
            stateless,
            None,
            None,
            None,
            ["no step of this script can be started from another run's state: its optimizer"],
        ),
        (
            scored({0: 0.0, 1: 0.0}, noise_record(0)),
            None,
            None,
            0.0,
            ["but no step does that both modes made from one state", "neither in parameters and buffers nor"],
        ),
        (
            scored({0: 0.0, 2: 0.0}, noise_record(0)),
            None,
            None,
            0.0,
            ["but no step does that both modes made from one state: look at that step (--steps 1)"],
        ),
        (
            scored({1: Outcome(loss=1 + 1000 * ULP)}, NOTHING_MEASURED),
            None,
            None,
            2000.0,
            ["step 1 drifts by 2e+03 times the rounding of its results (loss 0)", "noise of cpu was not measured"],
        ),
        # below the threshold a score without noise is an upper bound, and what no rounding makes needs none
        (scored({1: Outcome(loss=1 + 2 * ULP)}, NOTHING_MEASURED), "rounding", None, 4.0, ["is 4 times"]),
        (scored({1: Outcome(loss=math.inf)}, NOTHING_MEASURED), "beyond-rounding", 1, math.inf, ["any rounding"]),
    ],
)
def test_where_the_noise_or_the_steps_are_lacking_only_the_certain_is_decided(
    tmp_path: Path,
    arrange: Arrange,
    word: str | None,
    significant: int | None,
    score: float | None,
    fragments: Sequence[str],
) -> None:
    pair = only_pair(arrange(tmp_path))
    assert (pair.verdict, pair.first_significant_step) == (word, significant)
    assert pair.score == (None if score is None else pytest.approx(score, rel=1e-3))
    assert in_text(pair, *fragments)
    assert bool(pair.undecided) == (word is None)
    assert pair.exit_code == (word != "rounding")
    if word is None:
        assert pair.text[0] == f"undecided: {pair.undecided}"
        assert pair.unexplained == "no cause was looked for: nothing decides whether there is one"


def test_why_a_step_does_not_replay_is_noted(tmp_path: Path) -> None:
    pair = only_pair(scored({1: 0.0}, NOTHING_MEASURED)(tmp_path))
    assert in_notes(pair, "step 0", "an op draws")
    assert pair.noise == "rounding of the results alone"


def test_runs_from_perturbed_states_measure_the_noise_where_no_step_replays(tmp_path: Path) -> None:
    # given two runs of the reference's step from perturbed states, which move its loss by 4 noises either way
    study, runs = compared_study(tmp_path, {1: 40.0}, noises=[NOTHING_MEASURED])
    for number, z in enumerate((4.0, -4.0)):
        study.make(Experiment("ulp", "cpu", detail=str(number)), training(), {1: Outcome(z)})
    pair = only_pair(runs)
    assert (pair.verdict, pair.score) == ("rounding", pytest.approx(10.0, rel=1e-3))
    assert pair.noise == "2 runs of the script from states that are one ULP off"


def test_what_cannot_be_read_is_noted_and_the_rest_decides(tmp_path: Path) -> None:
    _, runs = compared_study(tmp_path, BEYOND)
    evidence = tmp_path / "evidence"
    (evidence / "compile-from-cpu" / "outcomes" / "outcome-000003.safetensors").write_bytes(b"damaged")
    pair = only_pair(runs)
    assert (pair.verdict, pair.score) == ("beyond-rounding", pytest.approx(40.0, rel=1e-3))
    assert [step.step for step in pair.steps] == [0, 1, 2, 4]
    assert in_notes(
        pair, "step 3 is not scored: ", "remove that run's folder, and `numdrift investigate` makes it anew"
    )


def test_further_steps_of_an_onset_tell_where_a_drift_begins(tmp_path: Path) -> None:
    study, runs = compared_study(tmp_path, {0: 1.0, 4: 90.0})
    study.make(Experiment("onset", "cpu", "compile", detail="0"), training(), dict.fromkeys((2, 3), Outcome()))
    assert only_pair(runs).first_significant_step == 4  # half an experiment says nothing
    mode_steps = {2: Outcome(2.0), 3: Outcome(80.0)}
    onset = Experiment("onset", "compile", "cpu", detail="0")
    study.make(onset, training(), mode_steps, events=resynced(mode_steps))
    pair = only_pair(runs)
    assert ([step.step for step in pair.steps], pair.first_significant_step) == ([0, 2, 3, 4], 3)
    assert (pair.score, pair.runs_used) == (pytest.approx(90.0, rel=1e-3), 7)


def test_a_step_counts_only_where_both_modes_began_it_in_one_state(tmp_path: Path) -> None:
    # given outcomes of steps 1 and 2, of which the mode began only step 1 in the reference's state
    study = Study(tmp_path)
    runs = [study.run("cpu", training()), study.run("compile", training(apart_from=1))]
    study.make(AGAIN, training(), dict.fromkeys((1, 2), Outcome()), noises=[noise_record(1)])
    study.make(FORCED, training(apart_from=1), {1: Outcome(2.0), 2: Outcome(90.0)}, events=resynced([1]))
    assert [step.step for step in only_pair(runs).steps] == [1]


CHOICES: Mapping[str, Any] = {"choices": {"score": 2.0, "discrete": 0, "flipped": 3, "ops": ["relu"]}}


@pytest.mark.parametrize(
    ("scores", "localized", "word", "significant", "score", "notes"),
    [
        (
            MANY,
            {2: CHOICES},
            "rounding",
            None,
            2.0,
            ["step 2: 3 elements of relu chose otherwise, next to their edges"],
        ),
        (BEYOND, {2: CHOICES}, "beyond-rounding", 3, 90.0, ["step 2: 3 elements of relu chose otherwise"]),
        (BEYOND, {2: CHOICES, 3: CHOICES}, "rounding", None, 2.0, ["step 2: 3 elements", "step 3: 3 elements"]),
        # with the reference's choices too much is left, or an op is wrong alone
        (MANY, {2: {"choices": {**CHOICES["choices"], "score": 30.0}}}, "beyond-rounding", 2, 40.0, []),
        (MANY, {2: {"choices": {**CHOICES["choices"], "discrete": 1}}}, "beyond-rounding", 2, 40.0, []),
        (MANY, {2: {**CHOICES, "culprits": culprits(WRONG)}}, "beyond-rounding", 2, 40.0, []),
        # an op that is wrong by itself is a fault where the noise of the step hides it
        (HARMLESS, {1: {"culprits": culprits({**WRONG, "step": 1})}}, "beyond-rounding", 1, 3.0, []),
        (HARMLESS, {1: {"culprits": culprits({**WRONG, "step": 1, "status": "suspect"})}}, "rounding", None, 3.0, []),
        (BEYOND, {1: {"culprits": culprits({**WRONG, "step": 1})}}, "beyond-rounding", 1, 90.0, []),
        (
            HARMLESS,
            {1: {"reason": "an op draws"}},
            "rounding",
            None,
            3.0,
            ["step 1 could not be localized: an op draws"],
        ),
    ],
)
def test_what_a_step_is_found_to_be_made_of_changes_its_verdict(
    tmp_path: Path,
    scores: Mapping[int, float],
    localized: Mapping[int, Mapping[str, Any]],
    word: str,
    significant: int | None,
    score: float,
    notes: Sequence[str],
) -> None:
    study, runs = compared_study(tmp_path, scores)
    for step, content in localized.items():
        study.localize(step, **content)
    pair = only_pair(runs)
    assert (pair.verdict, pair.first_significant_step) == (word, significant)
    assert pair.tests == 3 * len(localized) and pair.runs_used == 5 + len(localized)
    assert pair.score == pytest.approx(score, rel=0.02)
    assert in_notes(pair, *notes)


def test_the_causes_of_the_step_that_was_chosen_are_reported(tmp_path: Path) -> None:
    study, runs = compared_study(tmp_path, BEYOND)
    for step in (2, 3):
        found = {**KERNEL, "step": step, "significance": "beyond-rounding", "reasons": ["alike"]}
        study.localize(step, culprits=culprits(found), left={"explained": 1.0, "score": 0.0})
    assert [culprit.step for culprit in only_pair(runs).culprits] == [2]
    assert [culprit.step for culprit in only_pair(runs, 3).culprits] == [3]
    pair = only_pair(runs)
    assert (pair.explained, pair.unexplained) == (1.0, "")
    assert pair.culprits[0].command == f"numdrift localize {runs[0].path} {runs[1].path} --step 2"


def test_what_a_mode_draws_again_is_no_other_set_up(tmp_path: Path) -> None:
    # given a mode that draws more in step 1 than the reference, from which it goes on drawing
    def drawn(states: str) -> list[Step]:
        return [Step(losses=(float(state),), generators={"torch": state}) for state in states]

    study, runs = compared_study(tmp_path, HARMLESS, reference=drawn("01234"), free=drawn("01345"))
    assert only_pair(runs).verdict == "different-setup"
    assert in_text(only_pair(runs), "the modes draw different random numbers in step 1")
    # when the step shows that it executes a dropout again
    study.localize(1, culprits=culprits({"kind": "mark-step", "step": 1, "status": "culprit"}))
    assert only_pair(runs).verdict != "different-setup"


@pytest.mark.parametrize(("exact", "closer"), [(0.01, "cpu"), (7.99, "compile"), (4.0, "equal")])
def test_the_referee_tells_which_mode_is_closer_to_double(tmp_path: Path, exact: float, closer: str) -> None:
    # given ten steps in double, whose losses are so many noises away from those of the reference
    steps = range(10)
    study, runs = compared_study(
        tmp_path, dict.fromkeys(steps, 8.0), reference=training(10), free=training(10, apart_from=1)
    )
    tensors = {
        name: value.double() if value.is_floating_point() else value for name, value in Outcome(exact).tensors().items()
    }
    for step in steps:
        study.put(tmp_path / "evidence" / "cpu-again" / "tapes" / f"exact-{step:06d}.safetensors", tensors, step)
    # then the side is named, the reference's rule is in the text, and nothing of it where the set-up differs
    pair = only_pair(runs)
    assert (pair.verdict, pair.closer_to_fp64) == ("rounding", closer)
    assert pair.referee is not None and pair.text[-1] == pair.referee["text"]
    other = RecordedRun(runs[1].path, replace(runs[1].manifest, script_sha256="1"))
    different = only_pair([runs[0], other])
    assert different.verdict == "different-setup" and pair.referee["text"] not in different.text


@pytest.mark.parametrize(
    ("spec", "manifest", "note"),
    [
        ("compile,backend=aot_eager", {}, "not calibrated for compile:aot_eager"),
        ("compile", {"environment": {"environment": {"OMP_NUM_THREADS": "3"}}}, "OMP_NUM_THREADS (unset) against 3"),
    ],
)
def test_what_a_reader_should_know_is_noted(tmp_path: Path, spec: str, manifest: Mapping[str, Any], note: str) -> None:
    _, runs = compared_study(tmp_path, HARMLESS, spec=spec, **manifest)
    pair = only_pair(runs)
    assert in_notes(pair, note)
    assert len(set(pair.notes)) == len(pair.notes)
    _, plain = compared_study(tmp_path / "plain", HARMLESS)
    assert not in_notes(only_pair(plain), note)


def test_whole_trainings_are_judged_where_they_were_made(tmp_path: Path) -> None:
    study, runs = compared_study(tmp_path, HARMLESS)
    assert only_pair(runs).curve is None and only_pair(runs).lag is None
    for number in range(4):
        study.make(Experiment("perturbed", "cpu", detail=str(number)), training(apart_from=1, by=1e-7 * number))
    pair = only_pair(runs)
    assert pair.curve is not None and pair.lag is None
    assert pair.runs_used == 9


# Several modes, and several ranks.


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
        ((HARMLESS, BEYOND), "beyond-rounding", 1, "rank 0 is rounding, rank 1 is beyond-rounding; this is rank 1"),
        ((BEYOND, HARMLESS), "beyond-rounding", 0, "rank 0 is beyond-rounding, rank 1 is rounding; this is rank 0"),
        ((HARMLESS, {1: 4.0}), "rounding", 1, "all are rounding, and this is rank 1"),
        ((HARMLESS, HARMLESS), "rounding", 0, "all are rounding, and this is rank 0"),
        ((HARMLESS, {}), None, 1, "rank 0 is rounding, rank 1 is undecided; this is rank 1"),
        (({}, BEYOND), "beyond-rounding", 1, "rank 0 is undecided, rank 1 is beyond-rounding; this is rank 1"),
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
    runs = []
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

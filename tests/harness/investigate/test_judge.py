"""The findings on a pair, from runs and experiments that are written by hand: nothing is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.harness.drift.recordings import Step

from numdrift.harness.investigate.evidence.pair_evidence import evidence_for
from numdrift.harness.investigate.evidence.rerun_noise import keep_noise_of_reruns
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.run.step_files import STATE
from numdrift.harness.runs.recorded_run import RecordedRun

from .written_evidence import (
    AGAIN,
    BEYOND,
    FAULT,
    FORCED,
    HARMLESS,
    INSPECT,
    UNREPLAYED,
    Event,
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

ULP = 2.0**-23
"""The distance of 1.0 to the next float32: two roundings of a loss of 1."""


Arrange = Callable[[Path], Sequence[RecordedRun]]


def test_equal_runs_are_identical_without_any_experiment(tmp_path: Path) -> None:
    study = Study(tmp_path)
    pair = only_pair([study.run("cpu", training()), study.run("compile", training())])
    assert (pair.verdict, pair.exit_code, pair.score, pair.first_differing_step) == ("identical", 0, None, None)
    assert pair.text == ["identical: everything that cpu and compile recorded has the same bits"]
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
            "integers differ, although rounding never changes them",
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
    assert {step.compared for step in pair.steps} == {3}
    assert all(tensor.score for step in pair.steps for tensor in step.tensors)
    assert in_text(pair, "the losses differ from step 1 on, by at most 1e-07 of their value (step 1)")
    assert in_text(pair, "that alone says nothing, as training magnifies rounding") == (word == "rounding")
    assert in_notes(pair, "was not measured on their tapes") == (word == "beyond-rounding")


@pytest.mark.parametrize("flips", [0, 2])
def test_integers_that_rounding_changes_as_well_are_no_fault(tmp_path: Path, flips: int) -> None:
    _, runs = compared_study(tmp_path, {0: Outcome(1.0, counter=7)}, noises=[noise_record(0, flips=flips)])
    assert only_pair(runs).verdict == ("rounding" if flips else "beyond-rounding")


def test_each_step_has_the_noise_of_its_own_tape_or_of_the_nearest_and_at_least_the_median(tmp_path: Path) -> None:
    # given that rounding moves the loss of step 4 by ten times as much
    louder = noise_record(4)
    louder["tensors"]["loss 0"]["rms"] *= 10
    _, runs = compared_study(tmp_path, {0: 30.0, 1: 30.0, 3: 30.0, 4: 30.0}, noises=[noise_record(0), louder])
    pair = only_pair(runs)
    assert [step.score for step in pair.steps] == pytest.approx([30.0, 30.0 / 5.5, 3.0, 3.0], rel=1e-3)
    assert [step.taped for step in pair.steps] == [True, False, False, True]
    assert pair.noise == "8 replays with random rounding of the tape of step 0, 4"


def test_losses_that_stay_equal_are_reported_as_such(tmp_path: Path) -> None:
    free = changed(training(), 1, gradients={"w": [0.1, 0.3]})
    _, runs = compared_study(tmp_path, HARMLESS, free=free)
    pair = only_pair(runs)
    assert (pair.verdict, pair.first_differing_step) == ("rounding", 1)
    assert pair.text[1] == "the losses have the same bits at every step"


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
            [
                "the runs differ from step 1 on, and no step was started",
                "run `numdrift investigate",
                "from the same state",
            ],
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
            [
                "but every step that both modes computed from the same state has equal bits",
                "neither in parameters and buffers, nor",
            ],
        ),
        (
            scored({0: 0.0, 2: 0.0}, noise_record(0)),
            None,
            None,
            0.0,
            ["but every step that both modes computed from the same state has equal bits: look at step 1 (--steps 1)"],
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
        assert pair.unexplained == "no cause was looked for: the pair is undecided"


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
    assert pair.verdict == "rounding"
    assert pair.score == pytest.approx(10.0, rel=1e-3)
    assert pair.noise == "2 runs of the script from states that are one ULP off"
    # Once the noise is kept, the outcomes of these runs are not needed any more.
    keep_noise_of_reruns(evidence_for(*runs))
    assert not list(tmp_path.glob("evidence/cpu-ulp-*/outcomes/*"))
    assert only_pair(runs) == pair


def test_what_cannot_be_read_is_noted_and_the_rest_decides(tmp_path: Path) -> None:
    _, runs = compared_study(tmp_path, BEYOND)
    evidence = tmp_path / "evidence"
    (evidence / "compile-from-cpu" / "outcomes" / "outcome-000003.safetensors").write_bytes(b"damaged")
    pair = only_pair(runs)
    assert pair.verdict == "beyond-rounding"
    assert pair.score == pytest.approx(40.0, rel=1e-3)
    assert [step.step for step in pair.steps] == [0, 1, 2, 4]
    assert in_notes(
        pair, "step 3 is not scored: ", "remove that run's folder; `numdrift investigate` then repeats the run"
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
    assert pair.score == pytest.approx(90.0, rel=1e-3)
    assert pair.runs_used == 7


def test_a_step_counts_only_where_both_modes_began_it_in_one_state(tmp_path: Path) -> None:
    # given outcomes of steps 1 and 2, of which the mode began only step 1 in the reference's state
    study = Study(tmp_path)
    runs = [study.run("cpu", training()), study.run("compile", training(apart_from=1))]
    study.make(AGAIN, training(), dict.fromkeys((1, 2), Outcome()), noises=[noise_record(1)])
    study.make(FORCED, training(apart_from=1), {1: Outcome(2.0), 2: Outcome(90.0)}, events=resynced([1]))
    assert [step.step for step in only_pair(runs).steps] == [1]

"""The verdicts that make a comparison void: a run failed, does not repeat, has another set-up or is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.harness.drift.recordings import Step, X

from numdrift.harness.investigate.judging.judge import judge
from numdrift.harness.records.results.experiment import Experiment
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

Arrange = Callable[[Path], Sequence[RecordedRun]]


def not_repeating(side: str) -> Arrange:
    """A mode whose repetition has another loss in step 2, where the drift is beyond rounding as well."""
    apart_from = 1 if side == "mode_control" else None
    control: dict[str, Any] = {side: changed(training(apart_from=apart_from), 2, losses=(3.0,))}
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
            ["cpu does not repeat: loss 0 of step 2 differs", "deterministic=on"],
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
        (ended("refused", 1), "failed", 3, None, ["failed: numdrift ended compile after 1 step: no reason"]),
        (ended("killed", 2), "failed", 3, 1, ["compile was killed after 2 steps"]),
        (ended("timeout", 2), "failed", 3, 1, ["compile ran out of time after 2 steps"]),
        (ended("out-of-memory", 2), "failed", 3, 1, ["compile ran out of memory after 2 steps"]),
        (failed_experiment(AGAIN, 3), "failed", 3, None, ["failed: the repetition of cpu crashed after 3 steps"]),
        (failed_experiment(MODE_AGAIN, 3), "failed", 3, None, ["the repetition of compile crashed after 3 steps"]),
        (failed_experiment(FORCED, 3), "failed", 3, None, ["the second training run of compile crashed after 3 steps"]),
        (differing(losses=(math.nan,)), "nonfinite", 1, 2, ["step 2: loss 0 contains NaN only in compile"]),
        (differing(losses=(math.inf,)), "nonfinite", 1, 2, ["loss 0 contains infinity only in compile"]),
        (
            differing(gradients={"w": [math.nan, 1.0]}),
            "nonfinite",
            1,
            2,
            ["step 2: the gradient of `w` contains NaN only in compile"],
        ),
        (
            differing(batches=((X, ("int64", (4,), "cc")),)),
            "different-setup",
            1,
            3,
            ["different-setup: ", "batch"],
        ),
        (longer, "different-setup", 1, 1, ["different-setup: 5 against 6 steps"]),
        (other_script, "different-setup", 1, 1, ["different-setup: the runs executed different scripts"]),
        (another_seed, "different-setup", 1, 0, ["torch's generator is in a different state before step 0", "seeds"]),
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
    assert pair.score == pytest.approx(90.0, rel=1e-3)
    assert pair.first_significant_step == 2
    others = {"executed different scripts": OTHER_SCRIPT in troubles, "contains NaN": NOT_FINITE in troubles}
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
    assert in_text(only_pair(runs), "nonfinite: step 2: loss 0 contains NaN in both runs")


def test_equal_runs_that_are_not_finite_have_nothing_to_explain(tmp_path: Path) -> None:
    study, steps = Study(tmp_path), changed(training(), 2, losses=(math.nan,))
    pair = only_pair([study.run("cpu", steps), study.run("compile", steps)])
    assert (pair.verdict, pair.explained, pair.unexplained) == ("nonfinite", None, "")


@pytest.mark.parametrize(
    ("apart", "states", "word", "fragment"),
    [
        (2.0**-23, False, "rounding", "starts from different values (norm 2 against 2) (rounding)"),
        (2.0**-23, True, "rounding", "starts from different values (relative L2 1.2e-07) (rounding)"),
        (0.5, False, "different-setup", "starts from different values (norm 2 against 3)"),
        (0.5, True, "different-setup", "starts from different values (relative L2 0.5)"),
    ],
)
def test_initial_values_differ_by_rounding_or_in_the_set_up(
    tmp_path: Path, apart: float, states: bool, word: str, fragment: str
) -> None:
    # given a parameter whose four elements start at 1 in one mode, and their states of step 0 where they were kept
    study, runs = Study(tmp_path), list[RecordedRun]()
    for mode, value, free in (("cpu", 1.0, training()), ("compile", 1.0 + apart, training(apart_from=0))):
        runs.append(study.run(mode, free, initial={"w": np.full(4, value, np.float32)}))
        scored_steps = {1: Outcome()} if mode == "cpu" else {}
        again = study.make(Experiment("again", mode), free, scored_steps, noises=[noise_record(1)])
        if states:
            tensors = {"parameter w": torch.full((4,), value)}
            study.put(again.path / "states" / "state-000000.safetensors", tensors, 0)
    study.make(FORCED, training(apart_from=0), {1: Outcome()}, events=resynced([1]))
    pair = only_pair(runs)
    assert pair.verdict == word
    assert in_notes(pair, fragment) if word == "rounding" else in_text(pair, fragment)
    assert in_text(pair, "the runs start a few ULP apart") == (word == "rounding")


def test_of_several_failures_only_the_first_is_reported(tmp_path: Path) -> None:
    study = Study(tmp_path)
    runs = [study.run(mode, training(2), status="crashed", message="no reason") for mode in ("cpu", "compile")]
    assert only_pair(runs).text[0] == "failed: cpu crashed after 2 steps: no reason"


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


def test_every_difference_of_the_set_up_is_reported_and_is_a_culprit(tmp_path: Path) -> None:
    study = Study(tmp_path)
    mode = study.run("compile", training(4, apart_from=1), script_sha256="1", arguments=["--lr", "1"])
    pair = only_pair([study.run("cpu", training()), mode])
    # then its length is none of its own: it follows from the others
    assert pair.text[0].startswith("different-setup: the runs executed different scripts")
    assert pair.text[0].endswith("; and 1 more difference")
    assert pair.text[1] == "the script's arguments differ: (none) against --lr 1"
    assert [culprit.what for culprit in pair.culprits] == ["script", "arguments"]


@pytest.mark.parametrize(
    ("begun", "rejoined", "count", "word"),
    [
        ((1, COUNT - 1), False, COUNT, "rounding"),
        ((1, COUNT - 1), True, COUNT, "rounding"),
        ((1, COUNT - 1), False, COUNT + 1, "different-setup"),
        ((1,), False, COUNT, "different-setup"),
    ],
)
def test_a_length_that_follows_the_state_is_no_other_set_up(
    tmp_path: Path, begun: Sequence[int], rejoined: bool, count: int, word: str
) -> None:
    # given a mode with a step more, which ends with the reference where its last common step begins in that state; the
    # training that shows it may be the mode's control as well
    study = Study(tmp_path)
    free = training(COUNT + 1, apart_from=1)
    runs = [study.run("cpu", training()), study.run("compile", free)]
    study.make(AGAIN, training(), dict.fromkeys(begun, Outcome()), noises=[noise_record(1)])
    events = [*resynced(begun), *([{"event": "rejoined", "step": 2}] if rejoined else [])]
    study.make(FORCED, free[:count], dict.fromkeys(begun, Outcome(2.0)), events=events)
    pair = only_pair(runs)
    assert pair.verdict == word
    assert ("compile" in pair.controls) == rejoined
    sentence = "a computed value ends the script, after 5 steps in cpu and 6 in compile"
    assert in_text(pair, sentence) == (word == "rounding")

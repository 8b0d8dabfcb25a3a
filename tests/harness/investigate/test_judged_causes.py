"""What is known of the ops of steps, and of whole trainings, in the findings on a pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import Step, X

from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.runs.recorded_run import RecordedRun

from .written_evidence import (
    BEYOND,
    HARMLESS,
    KERNEL,
    Outcome,
    Study,
    changed,
    compared_study,
    culprits,
    in_notes,
    in_text,
    only_pair,
    resynced,
    training,
)

MANY = {**HARMLESS, 2: 40.0}


WRONG: Mapping[str, Any] = {
    **KERNEL,
    "significance": "beyond-rounding",
    "local_significance": "beyond-rounding",
    "local_rule": "error",
    "rho": {"a": 0.5, "b": 900.0},
}


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
            ["step 2: 3 elements of relu, next to their edges, made the opposite choice"],
        ),
        (BEYOND, {2: CHOICES}, "beyond-rounding", 3, 90.0, ["step 2: 3 elements of relu"]),
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


STAGES = ("eager", "aot_eager", "aot_eager_decomp_partition")


def stages_tried(study: Study, step: int, scores: Sequence[float]) -> None:
    """Write the step with each stage of the compiler before Inductor, and these scores."""
    for stage, score in zip(STAGES, scores, strict=True):
        experiment = Experiment("set", "compile", "cpu", step, f"backend.{stage}")
        spec = f"compile,backend={stage}"
        study.make(experiment, training(), {step: Outcome(score)}, events=resynced([step]), spec=spec)


@pytest.mark.parametrize(
    ("op", "kinds", "share"),
    [
        (None, ["compiler-stage"], 0.973),
        ({"status": "suspect"}, ["compiler-stage", "kernel"], 0.973),
        ({}, ["kernel"], 1.0),
    ],
)
def test_a_stage_of_the_compiler_is_named_where_no_op_is_proven(
    tmp_path: Path, op: Mapping[str, Any] | None, kinds: Sequence[str], share: float
) -> None:
    study, runs = compared_study(tmp_path, BEYOND)
    stages_tried(study, 2, (0.0, 0.8, 30.0))
    if op is not None:
        found = {**KERNEL, "step": 2, "significance": "beyond-rounding", **op}
        study.localize(2, culprits=culprits(found), left={"explained": 1.0, "score": 0.0})
    pair = only_pair(runs)
    assert [culprit.kind for culprit in pair.culprits] == kinds
    assert pair.explained == pytest.approx(share, abs=0.001)
    assert pair.compiler is not None and pair.compiler.step == 2
    assert in_text(pair, "z of step 2 by the compiler's stages: eager 0, aot_eager 0.8, aot_eager_decomp_partition 30,")


def test_a_stage_that_turns_a_discrete_choice_is_no_cause_of_a_later_step(tmp_path: Path) -> None:
    # given a step whose drift is that of a discrete choice, which another stage does not turn, and a fault after it
    study, runs = compared_study(tmp_path, BEYOND)
    study.localize(2, **CHOICES)
    stages_tried(study, 2, (0.0, 0.0, 0.0))
    pair = only_pair(runs)
    assert (pair.verdict, pair.first_significant_step) == ("beyond-rounding", 3)
    # then that stage is not a culprit, and explains nothing
    assert pair.culprits == []
    assert pair.explained is None


def test_what_was_found_in_a_step_before_the_first_significant_one_is_no_cause_of_it(tmp_path: Path) -> None:
    study, runs = compared_study(tmp_path, BEYOND)
    for step, op, significance in ((1, "aten.add", "rounding"), (2, "aten.mm", "beyond-rounding")):
        found = {**KERNEL, "step": step, "op": op, "significance": significance}
        study.localize(step, culprits=culprits(found), left={"explained": 1.0, "score": 0.0})
    assert [culprit.op for culprit in only_pair(runs).culprits] == ["aten.mm"]


def test_a_batch_that_was_followed_is_told_with_what_makes_it_another_one(tmp_path: Path) -> None:
    free = changed(training(apart_from=3), 2, batches=((X, ("int64", (4,), "cc")),))
    study, runs = compared_study(tmp_path, BEYOND, free=free)
    before = only_pair(runs)
    (batch,) = before.culprits
    # when the step's tape shows the op that makes the argument
    found = {
        **KERNEL,
        "kind": "arguments",
        "op": "aten.randint",
        "step": 2,
        "batch": [batch.name],
        "text": "aten.randint is called with other arguments",
    }
    study.localize(2, culprits=culprits(found))
    after = only_pair(runs)
    assert after.text[0] == f"{before.text[0]}: aten.randint is called with other arguments"
    assert [culprit.kind for culprit in after.culprits] == ["setup", "arguments"]


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


@pytest.mark.parametrize(
    ("score", "exact", "word", "closer"),
    [
        (8.0, 0.01, "rounding", "cpu"),
        (8.0, 7.99, "rounding", "compile"),
        (8.0, 4.0, "rounding", "equal"),
        (40.0, 0.01, "beyond-rounding", "cpu"),
    ],
)
def test_the_referee_tells_which_mode_is_closer_to_double(
    tmp_path: Path, score: float, exact: float, word: str, closer: str
) -> None:
    # given ten steps in double, whose losses are so many noises away from those of the reference
    steps = range(10)
    study, runs = compared_study(
        tmp_path, dict.fromkeys(steps, score), reference=training(10), free=training(10, apart_from=1)
    )
    tensors = {
        name: value.double() if value.is_floating_point() else value for name, value in Outcome(exact).tensors().items()
    }
    for step in steps:
        study.put(tmp_path / "evidence" / "cpu-again" / "tapes" / f"exact-{step:06d}.safetensors", tensors, step)
    # then the side is named, and it is in the text unless the set-up differs
    pair = only_pair(runs)
    assert (pair.verdict, pair.closer_to_fp64) == (word, closer)
    assert pair.referee is not None and pair.text[-1].startswith(pair.referee["text"])
    assert pair.text[-1].endswith("does not say which of them is right") == (word == "beyond-rounding")
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

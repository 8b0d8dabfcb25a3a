"""The cases themselves: every fault changes its training by far more than rounding, every benign variant by less.

Nothing of numdrift judges here. A training is compared with the unchanged one in float64, and the distance with the
distances of trainings whose initial parameters are one ULP off.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from numdrift.harness.records.modes.mode_spec import parse_mode

from ..processes.forked import python
from .case import BENIGN, FAULTS, Case, Trial, all_cases, all_models, trials

TIMES_NOISE = 16.0
"""A fault is at least so many times farther away than the farthest training that started one ULP off."""

BENIGN_DISTANCE = 2e-5
"""Relative distance of the first step's gradients that a reordering may cause: 300 units of float32 rounding."""

DISTANCES = {"mixed": 2e-2, "rotary": 2e-2, "half": 2e-2, "scaled": 2e-2, "contrast": 2e-2}
"""The same of models in 16 bits, and of one whose loss magnifies roundings."""

Steps = list[dict[str, Tensor]]


EVERYDAY = ("tanh_sam",)
"""The models that are trained in every run of the tests; the others where a case has changed, in the exhaustive one."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [pytest.param(model, marks=[] if model in EVERYDAY else pytest.mark.exhaustive) for model in all_models()],
)
def test_cases_do_what_they_say(model: str, tmp_path: Path) -> None:
    # Given the model trained as it is, from one ULP off, and with each case that needs no compiler.
    planted = [trial for trial in trials(model) if trial.mode.partition(",")[0] == "cpu"]
    repeated = [f"{again(trial)}={trial.spec.partition('=')[2]}" for trial in planted if repeats(trial)]
    specs = [*(trial.spec for trial in planted), *repeated]
    done = python(Path.cwd(), FAULTS / "train_all.py", model, tmp_path, *specs, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    results = {path.stem: torch.load(path) for path in tmp_path.glob("*.pt")}

    # When each is compared with the training as it is.
    wrong = [said for trial in planted if (said := complaint(trial, results))]

    # Then the training repeats itself, and every case changes it as it says.
    assert farthest(results["reference"], results["again"]) == 0.0
    assert not wrong, "\n".join(wrong)


def test_there_are_enough_cases() -> None:
    faults, benign = ([case for case in all_cases() if case.benign is harmless] for harmless in (False, True))

    assert len(all_models()) >= 8
    assert len(faults) >= 20
    assert len(benign) >= 15
    assert {case.kind for case in faults} == {
        "kernel", "argument", "structure", "optimizer", "loop", "setup", "randomness", "nonfinite",
        "several", "layout", "lazy", "order", "ragged", "neutral",
    }  # fmt: skip


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_a_case_says_what_it_is(case: Case) -> None:
    assert case.summary
    assert set(case.models) <= set(all_models())
    assert case.benign or case.kind != BENIGN
    assert case.plant or case.modes != ("cpu",)
    assert (len(case.culprits) > 1) == (case.kind == "several")


def test_several_faults_at_once_are_planted_in_every_way_of_executing() -> None:
    several = [trial for model in all_models() for trial in trials(model) if trial.case.kind == "several"]

    assert len(several) >= 12
    assert len({trial.model for trial in several}) >= 5
    assert {trial.mode.partition(",")[0] for trial in several} == {"cpu", "compile", "lazy"}
    assert {len(trial.case.culprits) for trial in several} == {2, 3}


@pytest.mark.parametrize("model", all_models())
def test_the_modes_of_a_model_have_names_of_their_own(model: str) -> None:
    names = [trial.name for trial in trials(model)]

    assert len(names) == len(set(names))
    assert all(parse_mode(trial.spec).name == trial.name for trial in trials(model))


def complaint(trial: Trial, results: dict[str, Steps]) -> str:
    """What is not as the case says, empty where all is."""
    reference, expected = results["reference"], trial.case.expected
    steps = results.get(trial.name)
    if expected == "failed" or steps is None:
        return "" if (expected == "failed") == (steps is None) else f"{trial.name}: failed: {steps is None}"
    if expected == "nonfinite":
        return "" if not finite(steps) and finite(reference) else f"{trial.name}: all values are finite"
    if expected == "nondeterministic":
        return "" if farthest(steps, results[again(trial)]) > 0 else f"{trial.name}: repeats itself"
    if expected == "identical":
        return "" if farthest(reference, steps) == 0 else f"{trial.name}: not the same bits"
    if expected == "rounding":
        limit = DISTANCES.get(trial.model, BENIGN_DISTANCE)
        distance = gradient_distance(reference[0], steps[0])
        return "" if distance < limit else f"{trial.name}: the first gradients are {distance:.2g} away"
    return beyond_noise(trial, steps, results)


def beyond_noise(trial: Trial, steps: Steps, results: dict[str, Steps]) -> str:
    reference = results["reference"]
    began = min((planted.get("step", 0) for planted in trial.case.culprits), default=0)
    ratios = [
        (number, distance(ours[name], theirs[name]) / max(noise(results, number, name), 2.0**-24))
        for number, (ours, theirs) in enumerate(zip(reference, steps, strict=True))
        for name in ours.keys() & theirs.keys()
    ]
    early = max((ratio for number, ratio in ratios if number < began), default=0.0)
    if early > TIMES_NOISE:
        return f"{trial.name}: {early:.2g} times the noise before step {began}"
    lacking = any(ours.keys() != theirs.keys() for ours, theirs in zip(reference, steps, strict=True))
    worst = max(ratio for _, ratio in ratios)
    if trial.case.hidden:
        return "" if worst > 0 else f"{trial.name}: the same bits"
    return "" if lacking or worst > TIMES_NOISE else f"{trial.name}: only {worst:.2g} times the noise"


def noise(results: dict[str, Steps], number: int, name: str) -> float:
    ours = results["reference"][number][name]
    return max(distance(ours, steps[number][name]) for key, steps in results.items() if key.startswith("off-"))


def distance(a: Tensor, b: Tensor) -> float:
    """||a - b|| / ||a||, infinite where only one is zero or not finite."""
    if torch.equal(a, b):
        return 0.0
    size = float((a - b).norm() / a.norm())
    return float("inf") if math.isnan(size) else size


def gradient_distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    ours, theirs = (
        torch.cat([value.flatten() for name, value in sorted(step.items()) if name.startswith("gradient")])
        for step in (a, b)
    )
    return distance(ours, theirs)


def farthest(a: Steps, b: Steps) -> float:
    return max(
        distance(ours[name], theirs[name])
        for ours, theirs in zip(a, b, strict=True)
        for name in ours.keys() & theirs.keys()
    )


def finite(steps: Steps) -> bool:
    return all(bool(value.isfinite().all()) for step in steps for value in step.values())


def repeats(trial: Trial) -> bool:
    return trial.case.expected == "nondeterministic"


def again(trial: Trial) -> str:
    return f"{trial.name}-again"

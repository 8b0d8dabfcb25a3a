"""Steps that a compiled mode begins in the reference's state without being observed, as in its own run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from numdrift.harness.investigate.experiments.chosen_steps import ChosenSteps
from numdrift.harness.investigate.experiments.rounds import apart
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.report.answer import answer_of

from .written_evidence import BEYOND, HARMLESS, KERNEL, Outcome, compared_study, only_pair, resynced, training

UNOBSERVED = Experiment("unobserved", "compile", "cpu")


def test_what_the_mode_computes_by_itself_decides(tmp_path: Path) -> None:
    # given steps within rounding as long as they are observed
    study, runs = compared_study(tmp_path, HARMLESS)
    assert only_pair(runs).verdict == "rounding"

    outcomes = {step: Outcome(score) for step, score in BEYOND.items()}
    study.make(UNOBSERVED, training(apart_from=1), outcomes, events=resynced(outcomes))

    pair = only_pair(runs)
    assert (pair.verdict, pair.first_significant_step) == ("beyond-rounding", 2)
    assert pair.score == pytest.approx(90.0, rel=1e-3)


@pytest.mark.parametrize(("spec", "made"), [("compile", True), ("lazy", False)])
def test_a_compiled_mode_that_continues_otherwise_is_run_without_being_observed(
    tmp_path: Path, spec: str, made: bool
) -> None:
    study, runs = compared_study(tmp_path, HARMLESS, spec=spec)
    for step in (0, 2):
        path = runs[0].path / "states" / f"state-{step:06d}.safetensors"
        study.put(path, {"parameter w": torch.ones(2)}, step)
    chosen = ChosenSteps(forced=(0, 2), taped=(0,), recorded=(0,), held=(2,), of={runs[1].path: (0, 2)})

    plans = {plan.modes[0].name: plan for plan in apart(runs[0], runs[1:], runs[1:], chosen).plans}

    assert (f"{spec}-unobserved-cpu" in plans) is made and f"{spec}-apart-cpu" in plans
    if made:
        plan = plans[f"{spec}-unobserved-cpu"]
        assert str(plan.outcomes) == "0,2" and plan.tapes is None and not plan.held


def test_the_owner_of_the_compiler_gets_the_report_of_its_cache(tmp_path: Path) -> None:
    study, runs = compared_study(tmp_path, BEYOND)
    cache = {
        **KERNEL,
        "kind": "compiler-setting",
        "name": "torch.compile's cache of graphs",
        "swapped": "graph_cache=off",
    }
    study.localize(2, culprits=[cache])
    todo = answer_of(only_pair(runs)).todo
    assert "whoever owns the compiler of compile" in todo and "run compile with graph_cache=off" in todo

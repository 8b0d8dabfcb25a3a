"""An investigation whose runs are written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.method import investigate_runs
from numdrift.harness.investigate.questions.question_table import LAST_QUESTIONS, QUESTIONS
from numdrift.harness.runs.recorded_run import RecordedRun

from .written_evidence import Study
from .written_laboratory import (
    PLAN,
    Investigated,
    Investigator,
    Look,
    Overheard,
    Quiet,
    Training,
    laboratory_of,
)


@pytest.fixture
def investigated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Investigator:
    """Return a function that investigates a training with these results of taking its steps apart. The fields of the
    manifest are those of the last mode's run."""

    def investigated_training(
        behaviour: Training,
        results: Mapping[int, Mapping[str, Any]] | None = None,
        plan: InvestigationRequest | None = None,
        **manifest: Any,
    ) -> Investigated:
        looks, together = list[Look](), list[list[str]]()
        for table in (QUESTIONS, LAST_QUESTIONS):
            for name, question in table.items():
                monkeypatch.setitem(table, name, Overheard(name, question, looks, results or {}, together))
        study, runs = Study(tmp_path / "study"), list[RecordedRun]()
        for mode, steps in behaviour.steps.items():
            runs.append(study.run(mode, steps, **(manifest if mode == list(behaviour.steps)[-1] else {})))
            for step in behaviour.kept:
                study.put(runs[-1].path / "states" / f"state-{step:06d}.safetensors", {"w": torch.ones(2)}, step)
        with laboratory_of(study, behaviour) as laboratory:
            findings = investigate_runs(runs, plan or PLAN, laboratory)
        sentences = cast(Quiet, laboratory.progress).sentences
        return Investigated(findings, laboratory.rounds, looks, together, laboratory.plans, sentences, runs)

    return investigated_training

"""Trainings on disk that no process has made, and a laboratory that answers its rounds with those of a test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.harness.drift.recordings import Step, record

from numdrift.harness.investigate.evidence.pair_evidence import evidence_for
from numdrift.harness.investigate.experiments.laboratory import Interrupted, Laboratory, Round
from numdrift.harness.investigate.questions.question import Inquiry
from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.launch.prepared_runs import run_config
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.results.findings import PairFindings
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.values.call_record import CALLS, CallRecord
from numdrift.harness.records.values.unfilled_read import UnfilledRead, write_unfilled
from numdrift.harness.runs.recorded_run import RecordedRun

SCRIPT = "/somewhere/train.py"


def call(op: str, line: int, **more: Any) -> CallRecord:
    """A call of an op in a line of the script; of none, the line alone. Line 0 is none."""
    return CallRecord(
        **{
            "step": 0,
            "op": op if op.startswith("graph ") or not op else f"aten.{op}.default",
            "line": f"{SCRIPT}:{line}" if line else "",
            "phase": "forward",
            **more,
        }
    )


@dataclass(frozen=True)
class Training:
    """What a training leaves: the calls of its steps, the reads of memory without values, and its ending. With `rest`
    the file of its calls ends in this text."""

    calls: Sequence[CallRecord] = ()
    unfilled: Sequence[UnfilledRead] = ()
    status: str = "complete"
    steps: int = 1
    rest: str = ""


def training(
    folder: Path, mode: str, steps: Sequence[Step], *, experiment: Experiment | None = None, **facts: Any
) -> RecordedRun:
    """Write a run of a mode, in the folder of an investigation; an experiment lies in its evidence. `facts` are those
    that `record` takes: of its journal and of its manifest."""
    spec = parse_mode(mode)
    path = folder / spec.name if experiment is None else folder / "evidence" / experiment.name
    more = {"spec": mode, "experiment": experiment, "label": spec.name, **facts}
    run = record(path, steps, **more)
    config = RunConfig(script=SCRIPT, mode=spec, journal=str(path / "journal"))
    (path / "config.json").write_text(json.dumps(config.to_json()), encoding="utf-8")
    run.manifest.write(path / "run.json")
    return run


def inquiry(a: RecordedRun, b: RecordedRun, verdict: str | None, culprits: Sequence[Culprit] = ()) -> Inquiry:
    """The inquiry into a pair with this verdict, from what lies beside its runs."""
    findings = PairFindings(a.manifest.label, b.manifest.label, verdict, [], culprits=culprits)
    return Inquiry(evidence_for(a, b), None, findings)


class WrittenLaboratory(Laboratory):
    """A laboratory that starts no process: for each experiment it leaves the training that the test has written for its
    name. Without one there it is interrupted. `rounds` are the rounds that were asked for, as names of experiments."""

    def __init__(self, answers: Mapping[str, Training]) -> None:
        self.answers = answers
        self.rounds: list[list[str]] = []
        self.titles: list[str] = []
        self.plans: dict[str, BatchPlan] = {}

    def make(self, experiments: Round, *, anew: bool = False) -> None:
        names = [plan.modes[0].name for plan in experiments.plans]
        self.rounds.append(sorted(names))
        self.titles.append(experiments.title)
        for name, plan in zip(names, experiments.plans, strict=True):
            assert name not in self.plans, f"{name} is made twice"
            self.plans[name] = plan
            if name not in self.answers:
                raise Interrupted
            if not plan.investigation.run(name, "").manifest.exists():  # else an earlier call has left it
                _leave(plan, self.answers[name])


def _leave(plan: BatchPlan, answer: Training) -> None:
    [spec] = plan.modes
    folder = plan.investigation.run(spec.name, "")
    run = record(folder.path, [Step()] * answer.steps, spec=str(spec), status=answer.status, experiment=plan.experiment)
    folder.config.write_text(json.dumps(run_config(plan, spec, folder).to_json()), encoding="utf-8")
    lines = b"".join(call.to_line() for call in answer.calls)
    (folder.journal / CALLS).write_bytes(lines + answer.rest.encode())
    for step in sorted({read.call.step for read in answer.unfilled}):
        write_unfilled(folder.path, [read for read in answer.unfilled if read.call.step == step])
    run.manifest.write(folder.manifest)


def in_steps(*steps: Sequence[CallRecord]) -> list[CallRecord]:
    """The calls of some steps, numbered from 0."""
    return [replace(call, step=step) for step, calls in enumerate(steps) for call in calls]

"""In which order a moment of the training reaches those who watch it: what each of them does when it is told
is load-bearing.

A tape is replayed only where nothing else listens to the ops, a state is put in place before anything is read
from it, graphs are closed before the mode executes them, and what a step left is written before anybody keeps
files of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from numdrift.harness.backends.capturing.eager_capture import EagerCapture
from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.observers.calls.operation_recorder import OperationRecorder
from numdrift.harness.observers.experiments import tape_recording
from numdrift.harness.observers.experiments.forced_steps import ForcedSteps
from numdrift.harness.observers.experiments.step_experiments import OutcomeFiles
from numdrift.harness.observers.metrics_instrument import MetricsInstrument
from numdrift.harness.observers.state.batches import Batches
from numdrift.harness.observers.state.script_generators import GeneratorDigests
from numdrift.harness.observers.state.setup_facts import InitialTensors
from numdrift.harness.observers.state.training_state import StateFiles
from numdrift.harness.observers.values.step_writer import StepWriter
from numdrift.harness.recorder.session import Session
from numdrift.harness.records import frames
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.records.tools.backend_work import FILE as METRICS
from numdrift.harness.script.after_step import AfterStep
from numdrift.harness.tape.files.journal_writing import EventLog
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder

ALL = StepSelection(((0, None),))

TOLD: list[tuple[type, str, str]] = [
    (EagerMode, "adopt", "the mode takes a model over"),
    (EagerMode, "close", "the mode closes {0}"),
    (EagerCapture, "install", "graphs begin"),
    (EagerCapture, "adopted", "graphs see a model"),
    (EagerCapture, "backward_started", "graphs see a backward"),
    (EagerCapture, "closing", "graphs close before {0}"),
    (EagerCapture, "reached", "graphs go on after {0}"),
    (EagerCapture, "remove", "graphs end"),
    (OperationRecorder, "enter", "ops are listened to"),
    (OperationRecorder, "leave", "ops are left"),
    (ForcedSteps, "_load", "a state is loaded"),
    (StateFiles, "write", "state {0} is kept"),
    (TapeRecorder, "start", "a tape begins"),
    (TapeRecorder, "stop", "a tape ends"),
    (OutcomeFiles, "saw", "{0} is seen"),
    (OutcomeFiles, "write", "outcomes are written"),
    (InitialTensors, "adopted", "initial values are read"),
    (InitialTensors, "settled", "initial values settle"),
    (GeneratorDigests, "read", "generators are read"),
    (Batches, "called", "a batch is read"),
    (StepWriter, "write", "the step is written"),
    (StepWriter, "write_logged", "late values are written"),
    (StepWriter, "write_last_values", "the last values are written"),
    (AfterStep, "settle", "what waited is done"),
    (MetricsInstrument, "install", "the instrument begins"),
    (MetricsInstrument, "adopted", "the instrument sees a model"),
    (MetricsInstrument, "_end_phase", "the instrument is told"),
    (MetricsInstrument, "close", "the instrument ends"),
]
"""What the watchers do, by the method that does it."""

EVENTS = ("adopted", "hyper", "end")

BEGINNING = """
    generators are read
    graphs begin
    the instrument begins
    ops are listened to
"""

FORWARD = """
    the mode takes a model over
    initial values are read
    a state is loaded
    state 0 is kept
    a tape begins
    generators are read
    graphs see a model
    the instrument sees a model
    event adopted
    a batch is read
    the instrument is told
"""

BACKWARD = """
    loss 0 is seen
    graphs see a backward
    the instrument is told
    gradient 0 0.weight is seen
    gradient 0 0.bias is seen
    graphs close before backward
    the instrument is told
    the mode closes backward
    graphs go on after backward
    the instrument is told
"""

UPDATE = """
    event hyper
    initial values are read
"""

STEP = """
    ops are left
    parameter 0.weight is seen
    parameter 0.bias is seen
    a tape ends
    the tape is replayed
    graphs close before step
    graphs end
    the instrument is told
    the mode closes step
    the step is written
    outcomes are written
    what waited is done
    graphs go on after step
    the instrument is told
    a state is loaded
    state N is kept
    a tape begins
    ops are listened to
    generators are read
"""

NEXT_FORWARD = """
    a batch is read
    the instrument is told
"""

END = """
    ops are left
    a tape ends
    graphs close before end
    graphs end
    the instrument is told
    the mode closes end
    graphs go on after end
    the instrument is told
    the instrument ends
    graphs end
    late values are written
    the last values are written
    what waited is done
    event end
"""


def lines(*moments: str) -> list[str]:
    return [line.strip() for moment in moments for line in moment.splitlines() if line.strip()]


def config_of(run: Path, **options: Any) -> RunConfig:
    (run / "journal").mkdir(parents=True)
    return RunConfig(script=__file__, mode=parse_mode("cpu"), journal=str(run / "journal"), **options)


def train(config: RunConfig, steps: int) -> None:
    """Train a model in this process and record it."""
    torch.manual_seed(0)
    session = Session(config)
    session.open(frozenset())
    try:
        model = nn.Sequential(nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
    finally:
        session.close(None)


def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the watchers do from here on."""
    happened: list[str] = []

    def told(holder: Any, name: str, text: str) -> None:
        original: Callable[..., Any] = getattr(holder, name)

        @functools.wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            happened.append(text.format(*args))
            return original(self, *args, **kwargs)

        monkeypatch.setattr(holder, name, method)

    for one in TOLD:
        told(*one)

    write, replay = EventLog.write, vars(tape_recording)["measure_settled"]

    def event(self: EventLog, event: str, **fields: Any) -> None:
        if event in EVENTS and self.path.name != METRICS:
            happened.append(f"event {event}")
        write(self, event, **fields)

    def replayed(*args: Any, **kwargs: Any) -> Any:
        happened.append("the tape is replayed")
        return replay(*args, **kwargs)

    monkeypatch.setattr(EventLog, "write", event)
    monkeypatch.setattr(tape_recording, "measure_settled", replayed)
    return happened


def test_each_moment_reaches_the_watchers_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(config_of(tmp_path / "reference", states=ALL), steps=2)
    config = config_of(
        tmp_path / "run",
        record="ops",
        states=ALL,
        outcomes=ALL,
        tapes=ALL,
        resync=str(tmp_path / "reference" / "states"),
        graphs=True,
        graph_steps=ALL,
        instruments={"metrics": {}},
    )
    happened = heard(monkeypatch)
    train(config, steps=2)
    written = (tmp_path / "run" / "journal" / frames.EVENTS).read_text(encoding="utf-8")
    assert "failed" not in written
    first, second = STEP.replace("N", "1"), STEP.replace("N", "2")
    assert happened == lines(BEGINNING, FORWARD, BACKWARD, UPDATE, first, NEXT_FORWARD, BACKWARD, second, END)

"""The profiler in the script's process: which steps it traces, when it stops, and what it leaves alone."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from numdrift.harness.hooks.observer import Surroundings
from numdrift.harness.observers.profile.profile_instrument import ProfileInstrument
from numdrift.harness.records.codec import of_fields
from numdrift.harness.records.modes.mode_registry import registry
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.records.tools.profile_record import EVENTS, PHASE, PROFILE, WORKING, TraceRequest
from numdrift.harness.torch_private.profiling.torch_profiler import profiler_runs

SMALL = 2000
"""Bytes, of which every trace of a step has more."""


class Training:
    """A training of steps in this process, followed by the instrument as the recorder leads it."""

    def __init__(self, folder: Path, request: TraceRequest, device: str = "cpu") -> None:
        spec = parse_mode("cpu")
        config = RunConfig(script=__file__, mode=spec, journal=str(folder / "journal"))
        mode = registry.load("cpu")(spec)
        mode.device = device
        self.folder = folder / PROFILE
        self.instrument = ProfileInstrument(
            Surroundings(config, of_fields(request), mode, folder, list, lambda *_, **__: None, lambda _: None)
        )
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.step = 0
        self.called_first = True
        self.instrument.install()
        self.instrument.adopted(self.model)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.one()

    def one(self) -> None:
        self.instrument.reached("forward", self.step)
        loss = self.model(torch.ones(2, 4)).sum()
        self.instrument.reached("backward", self.step)
        loss.backward()
        self.instrument.closing("backward", self.step)
        self.instrument.reached("optimizer", self.step)
        self.optimizer.step()
        self.instrument.closing("step", self.step)
        self.step += 1
        self.called_first = True
        self.instrument.reached("step", self.step)

    def call(self) -> None:
        """Call the model as the recorder sees it: `forward` is reached once until the next backward."""
        self.instrument.called(self.model)
        if self.called_first:
            self.called_first = False
            self.instrument.reached("forward", self.step)
        self.model(torch.ones(2, 4))

    def end(self) -> None:
        self.instrument.closing("step", self.step)
        self.instrument.reached("end", self.step)
        self.instrument.close()

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.folder / EVENTS).read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def traced(self) -> list[int]:
        return [event["step"] for event in self.events("traced")]

    def over(self) -> str:
        (event,) = self.events("over")
        return str(event["why"])

    def names(self, step: int) -> list[str]:
        trace = json.loads((self.folder / WORKING / f"step-{step:06d}.json").read_text())
        events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        return [event["name"] for event in sorted(events, key=lambda event: event["ts"])]

    def phases(self, step: int) -> list[str]:
        """In the order in which they began."""
        return [name.removeprefix(PHASE) for name in self.names(step) if name.startswith(PHASE)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    enter = torch.autograd.profiler.record_function.__enter__
    yield tmp_path
    assert torch.autograd.profiler.record_function.__enter__ is enter, "everything is as it was"
    assert not profiler_runs()


def request(steps: str, **options: Any) -> TraceRequest:
    return TraceRequest(steps=StepSelection.parse(steps), **options)


def test_the_asked_steps_are_traced_each_into_its_file(folder: Path) -> None:
    training = Training(folder, request("1,3"))
    training.run(5)
    training.end()
    assert training.traced() == [1, 3]
    assert training.over() == "steps"
    names = training.names(3)
    assert names.count("ProfilerStep#3") == 1
    assert {"phase: forward", "phase: backward", "phase: optimizer", "module: 0", "module: 1"} <= set(names)
    assert [event["step"] for event in training.events("untraced")] == [0, 2]


def test_a_step_that_the_script_does_not_end_is_kept_as_far_as_it_went(folder: Path) -> None:
    training = Training(folder, request("0-9"))
    training.run(1)
    training.instrument.reached("forward", training.step)
    training.model(torch.ones(2, 4))
    training.end()
    assert [(event["step"], event["whole"]) for event in training.events("traced")] == [(0, True), (1, False)]
    assert training.over() == "end"


def test_what_follows_the_last_step_is_no_step(folder: Path) -> None:
    training = Training(folder, request("0-9"))
    training.run(2)
    training.end()
    assert training.traced() == [0, 1]


def test_a_trace_that_has_grown_too_large_is_ended(folder: Path) -> None:
    training = Training(folder, request("0-", limit=SMALL))
    training.run(4)
    training.end()
    assert (training.traced(), training.over()) == ([0], "limit")


def test_the_duration_ends_with_the_step_in_which_it_is_over(folder: Path) -> None:
    training = Training(folder, request("1-", duration=1e-9))
    training.run(4)
    training.end()
    assert (training.traced(), training.over()) == ([1], "duration")


def test_a_profiler_of_the_scripts_own_goes_first(folder: Path) -> None:
    training = Training(folder, request("0-9"))
    training.one()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        training.one()
    training.one()
    training.end()
    assert training.over() == "profiler"
    assert any(event.key == "aten::addmm" for event in own.key_averages())


def test_ranges_of_the_script_go_on_from_step_to_step(folder: Path) -> None:
    training = Training(folder, request("0-9"))
    with torch.profiler.record_function("epoch"):
        training.run(2)
    training.run(1)
    training.end()
    assert training.traced() == [0, 1, 2]
    assert "epoch" in training.names(0) and "epoch" in training.names(1)


def test_what_no_range_of_ours_is_and_is_open_ends_the_tracing(folder: Path) -> None:
    training = Training(folder, request("0-9"))
    open_ = torch._C._profiler._RecordFunctionFast("compiled")
    open_.__enter__()
    training.run(2)
    open_.__exit__(None, None, None)
    training.end()
    assert (training.traced(), training.over()) == ([0], "open")


def test_a_block_is_told_with_its_count(folder: Path) -> None:
    training = Training(folder, request("0"))
    for _ in range(2):
        training.instrument.phase("mine", begins=True)
        training.instrument.phase("mine", begins=False)
    training.run(1)
    training.end()
    assert training.names(0).count("mine") == 2
    assert training.events("traced")[0]["blocks"]["mine"] == 2


def test_the_forward_begins_with_the_first_call_that_has_gradients(folder: Path) -> None:
    training = Training(folder, request("0-1"))
    # given a step that evaluates first
    with torch.no_grad():
        training.call()
        training.call()
    training.call()
    training.one()
    # and one that only evaluates
    with torch.no_grad():
        training.call()
    training.instrument.reached("step", 2)
    training.end()
    # then
    assert training.phases(0)[:3] == ["setup", "no gradients", "forward"]
    assert training.phases(0).count("forward") == 1
    assert training.phases(1) == ["data", "no gradients"]


def test_an_evaluation_between_two_backwards_changes_no_phase(folder: Path) -> None:
    training = Training(folder, request("0"))
    for progress in ("forward", "backward", "optimizer"):
        training.instrument.reached(progress, 0)
    training.called_first = True
    with torch.no_grad():
        training.call()
    training.call()
    training.instrument.reached("step", 1)
    training.end()
    assert training.phases(0) == ["setup", "forward", "backward", "optimizer", "forward"]


def test_a_model_is_copied_and_saved_as_ever(folder: Path) -> None:
    training = Training(folder, request("0-9"))
    training.run(1)
    copied = copy.deepcopy(training.model)
    assert not copied._forward_hooks and not copied._forward_pre_hooks
    pickle.dumps(training.model)
    training.end()


def test_the_details_have_the_line_that_called_an_op(folder: Path) -> None:
    training = Training(folder, request("1", kind="operator"))
    training.run(2)
    training.end()
    lines = set(json.loads((training.folder / WORKING / "step-000001.lines").read_text()).values())
    called = next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "self.model(torch" in line)
    assert f"{Path(__file__).name}:{called}" in {line.rpartition("/")[2] for line in lines}


def test_a_device_has_done_all_of_a_step_when_its_trace_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a device that counts its memory, and is waited for
    waits: list[str] = []
    stop = torch.profiler.profile.stop

    def stopping(profiler: torch.profiler.profile) -> None:
        waits.append("stops")
        stop(profiler)

    device = SimpleNamespace(synchronize=lambda *_: waits.append("waits"), memory_allocated=lambda *_: 40)
    monkeypatch.setattr(torch, "ipu", device, raising=False)
    monkeypatch.setattr(torch.profiler.profile, "stop", stopping)
    # when
    training = Training(folder, request("1-2"), "ipu")
    training.run(4)
    training.end()
    # then the first trace is one that nobody reads, and memory that is allocated in a step is nothing left open
    assert waits == ["waits", "waits", "stops"] * 3
    assert (training.traced(), training.over()) == ([1, 2], "steps")
    assert "[memory]" in (training.folder / WORKING / "step-000001.json").read_text()
    assert [event["memory"] for event in training.events("traced")] == [{"device": 0, "allocated": 40}] * 2
    (told,) = training.events("device")
    assert told["kind"] == "ipu" and "reports no times for ipu" in told["problem"]


@pytest.mark.parametrize("kind", ["trace", "operator"])
def test_no_bit_of_the_training_changes(kind: Any, folder: Path) -> None:
    torch.manual_seed(3)
    traced = Training(folder / "traced", request("1-2", kind=kind))
    plain = copy.deepcopy(traced.model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    traced.run(4)
    traced.end()
    for _ in range(4):
        plain(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    for one, other in zip(plain.parameters(), traced.model.parameters(), strict=True):
        assert torch.equal(one, other)

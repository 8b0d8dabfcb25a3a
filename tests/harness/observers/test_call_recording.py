"""Calls and draws are recorded with their lines, in every thread, and nothing of the training changes by that."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import nn

from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.hooks.observer import RecordingSurroundings
from numdrift.harness.observers.calls.call_recording import CallRecording
from numdrift.harness.observers.values.digest import Digester, hash_text
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.records.values.call_record import CALLS, SETUP_PHASE, CallRecord


def recorded(folder: Path, *steps: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> list[CallRecord]:
    """The calls of these steps, of which step 1 is not to be recorded, and of what comes before them."""
    spec = parse_mode("cpu")
    config = RunConfig(__file__, spec, str(folder), calls=StepSelection.of([0, 2]))
    around = SimpleNamespace(
        config=config,
        mode=EagerMode(spec),
        digester=Digester(),
        notice=lambda text: None,
        guard=lambda one: nullcontext(),
    )
    around.mode.device = "cpu"
    recording = CallRecording(cast(RecordingSurroundings, around))
    recording.install()
    try:
        before()
        for number, step in enumerate(steps):
            recording.begins(number)
            step()
            recording.step_ended(number)
    finally:
        recording.close()
    path = folder / CALLS
    lines = path.read_text().splitlines() if path.exists() else []
    return [CallRecord.from_line(line) for line in lines]


def line_of(text: str) -> str:
    """Where this text stands in this file for the first time, as a statement of its own."""
    lines = Path(__file__).read_text().splitlines()
    return f"{__file__}:{next(number for number, line in enumerate(lines, 1) if line.strip() == text)}"


def digest_of(tensor: torch.Tensor) -> str:
    return hash_text(Digester().digest([tensor]))


def test_a_call_has_its_line_what_it_was_given_and_what_it_gave(tmp_path: Path) -> None:
    x = torch.arange(4.0)

    def step() -> torch.Tensor:
        return x * 2.5

    found = recorded(tmp_path, step)

    [mul] = found
    assert (mul.step, mul.name, mul.numbers) == (0, "aten.mul", "2.5")
    assert mul.line == line_of("return x * 2.5")
    assert [one[1] for one in mul.tensors] == [digest_of(x)]
    assert [one[1] for one in mul.results] == [digest_of(x * 2.5)]


def test_modules_and_phases_are_told_and_steps_that_nobody_asked_for_are_not(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def step() -> None:
        model(torch.ones(2, 3)).sum().backward()

    found = recorded(tmp_path, step, step, step, before=lambda: torch.zeros(1))

    assert {call.step for call in found} == {0, 2}
    assert {call.name for call in found if call.phase == SETUP_PHASE} == {"aten.zeros"}
    places = {(call.name, call.phase, call.module) for call in found}
    assert ("aten.tanh", "forward", "1") in places
    assert ("aten.tanh_backward", "backward", "1") in places


def test_what_is_changed_in_place_keeps_its_memory(tmp_path: Path) -> None:
    def step() -> None:
        x = torch.zeros(3)
        x.add_(1.0)
        x.view(3, 1).mul_(2.0)

    zeros, add, view, mul = recorded(tmp_path, step)

    memory = zeros.results[0][0]
    assert add.written == (0,) and add.results == ((memory, digest_of(torch.ones(3))),)
    assert view.results == ((memory, ""),)  # which computes nothing
    assert mul.tensors[0] == (memory, digest_of(torch.ones(3)))


def test_calls_of_threads_have_the_number_of_their_thread(tmp_path: Path) -> None:
    x = torch.zeros(3)

    def step() -> None:
        for _ in range(2):
            thread = threading.Thread(target=lambda: x.add_(1.0))
            thread.start()
            thread.join()
        x.sum()

    found = recorded(tmp_path, step)

    assert [(call.name, call.thread) for call in found] == [("aten.add_", 1), ("aten.add_", 2), ("aten.sum", 0)]
    assert threading.Thread.start.__module__ == threading.Thread.run.__module__ == "threading"  # put back


def test_draws_have_the_states_of_their_generator_and_lines_their_own(tmp_path: Path) -> None:
    own = torch.Generator().manual_seed(3)

    def jitter() -> float:
        return random.random()

    def step() -> None:
        torch.rand(2)
        torch.rand(2, generator=own)
        torch.manual_seed(11)
        value = jitter() + 1.0
        assert value

    random.seed(0)
    found = recorded(tmp_path, step)

    drew = [(call.name, call.line, [name for name, _, _ in call.drew]) for call in found]
    assert drew == [
        ("aten.rand", line_of("torch.rand(2)"), ["torch"]),
        ("aten.rand", line_of("torch.rand(2, generator=own)"), ["own"]),
        ("", line_of("torch.manual_seed(11)"), ["torch"]),
        ("", line_of("return random.random()"), ["python"]),
    ]
    assert found[0].drew[0][2] == found[2].drew[0][1]


def test_no_bit_is_changed_and_no_trace_function_is_left(tmp_path: Path) -> None:
    def step() -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model(torch.rand(8, 4)).square().mean().backward()
        optimizer.step()
        given.append(torch.cat([one.detach().flatten() for one in model.parameters()]))

    given: list[torch.Tensor] = []
    before = sys.gettrace()
    for run in (lambda: step(), lambda: recorded(tmp_path, step)):
        torch.manual_seed(5)
        run()

    assert torch.equal(given[0], given[1])
    assert sys.gettrace() is before

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.observers.experiments.tape_recording import TapeRecording
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.tape.files.tape_file import read_tape
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.serving.requests import Requests
from numdrift.harness.tape.serving.wire import Message

from ..tape.trainings import Training, started


@dataclass
class Run:
    """A run whose recorder is this file."""

    folder: Path
    recording: TapeRecording
    notices: list[str] = field(default_factory=list)

    def step(self, training: Training, number: int) -> dict[str, torch.Tensor]:
        seen: dict[str, torch.Tensor] = {}

        def saw(name: str, tensor: torch.Tensor) -> None:
            seen[name] = tensor.detach().clone()
            self.recording.saw(name, tensor)

        self.recording.begins(number)
        training.step(saw)
        self.recording.step_ended(number)
        return seen

    def noise(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "tapes" / f"noise-{number:06d}.json").read_text())
        return found

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "tapes").glob("*"))


@contextmanager
def running(
    folder: Path, tapes: str = "1", mode: str = "cpu", *, device: str | None = None, measured: str | None = None
) -> Iterator[Run]:
    spec = parse_mode(mode)
    steps = StepSelection.parse(tapes)
    config = RunConfig(
        __file__,
        spec,
        str(folder / "journal"),
        tapes=steps,
        measured=None if measured is None else StepSelection.parse(measured),
        noise_replays=3,
    )
    eager = EagerMode(spec)
    eager.device = device or "cpu"
    notices: list[str] = []
    recording = TapeRecording(config, steps, eager, notices.append, lambda event, **fields: None, {})
    run = Run(folder, recording, notices)
    run.recording.install()
    try:
        yield run
    finally:
        run.recording.close()


def test_chosen_steps_leave_a_tape_and_its_noise(tmp_path: Path) -> None:
    # when
    with running(tmp_path, "1,3-4") as run:
        training = started("mlp", 0)
        seen = [run.step(training, number) for number in range(4)]
    # then
    assert run.files() == [
        "noise-000001.json",
        "noise-000003.json",
        "tape-000001.safetensors",
        "tape-000003.safetensors",
    ]
    noise = run.noise(3)
    assert {key: noise[key] for key in ("schema", "step", "replays", "equal", "differs", "reason")} == {
        "schema": 1,
        "step": 3,
        "replays": 3,
        "equal": True,
        "differs": [],
        "reason": None,
    }
    assert noise["calls"] > 50 and noise["seconds"]["replay"] > 0 and noise["seconds"]["rounded"] > 0
    assert list(noise["tensors"]) == list(seen[3])
    assert set(noise["tensors"]["loss 0"]) == {"rms", "flips", "norm", "reach", "spread"}
    assert not run.notices
    tape = read_tape(tmp_path / "tapes" / "tape-000003.safetensors")
    assert tape.step == 3 and all(is_same(tape.expected()[key], value) for key, value in seen[3].items())


def test_a_tape_that_is_not_measured_is_there_to_be_asked_about(tmp_path: Path) -> None:
    # when
    with running(tmp_path, "0-2", measured="1") as run:
        training = started("mlp", 0)
        seen = [run.step(training, number) for number in range(3)]
    # then only the measured one was replayed
    assert run.files() == ["noise-000001.json", *(f"tape-00000{number}.safetensors" for number in range(3))]
    # and who asks for the noise of another has it measured, on the step's own bits
    requests = Requests(RunConfig(__file__, parse_mode("cpu"), str(tmp_path / "journal")), {})
    answer = requests.answer(Message({"request": "noise", "step": 2, "replays": 2, "edge": 1}))
    noise = answer.fields["noise"]
    assert noise["equal"] and noise["replays"] == 2 and list(noise["tensors"]) == list(seen[2])


def test_a_step_without_a_tape_says_why_only_where_it_is_measured(tmp_path: Path) -> None:
    with running(tmp_path, "0-2", measured="1") as run:
        training = OnMeta()
        for number in range(3):
            run.step(training, number)
    assert run.files() == ["noise-000001.json"]
    assert len(run.notices) == 1


def test_the_training_keeps_every_bit(tmp_path: Path) -> None:
    # given
    twin = started("transformer", 0)
    expected = [twin.values() for _ in range(4)]
    # when
    with running(tmp_path, "0-2") as run:
        training = started("transformer", 0)
        found = [run.step(training, number) for number in range(4)]
    # then
    for step, values in zip(found, expected, strict=True):
        assert all(is_same(step[name], value) for name, value in values.items())


def test_nothing_is_hooked_outside_of_a_tape(tmp_path: Path) -> None:
    compile_ = torch.compile
    with running(tmp_path) as run:
        training = started("mlp", 0)
        run.step(training, 0)
        run.recording.begins(1)
        assert torch.nn.modules.module._global_forward_hooks
        training.step(run.recording.saw)
        run.recording.step_ended(1)
        assert not torch.nn.modules.module._global_forward_hooks
        run.recording.begins(1)
    assert not torch.nn.modules.module._global_forward_hooks
    assert torch.compile is compile_
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


class Sparse(Training):
    def __init__(self) -> None:
        model = nn.Embedding(5, 3, sparse=True)
        super().__init__(model, torch.optim.SparseAdam(model.parameters()))

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(self.model(torch.tensor([1, 2, 1])).square().sum())
        self.optimizer.step()


class OnMeta(Training):
    """Calls an op on tensors without values."""

    def __init__(self) -> None:
        model = nn.Linear(3, 1)
        super().__init__(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def work(self) -> None:
        torch.ones(2, device="meta") + 1
        self.backward(self.model(torch.ones(2, 3)).square().sum())
        self.optimizer.step()


def test_what_a_tape_leaves_out_is_said_once(tmp_path: Path) -> None:
    with running(tmp_path, "0-1") as run:
        training = Sparse()
        for step in range(2):
            run.step(training, step)
    assert run.noise(0)["equal"] and "loss 0" in run.noise(0)["tensors"]
    [notice] = run.notices
    assert notice.startswith("from step 0 on, the tape leaves out ") and "sparse=False" in notice


def test_a_step_that_a_tape_cannot_hold_says_why(tmp_path: Path) -> None:
    with running(tmp_path, "0") as run:
        run.step(OnMeta(), 0)
    noise = run.noise(0)
    assert not noise["equal"] and "meta" in noise["reason"] and noise["tensors"] == {}
    assert run.files() == ["noise-000000.json"]
    assert run.notices == [f"step 0 does not replay: {noise['reason']}"]


class Outside(Training):
    """Something that torch does not see writes into the step."""

    def __init__(self) -> None:
        model = nn.Linear(3, 1)
        super().__init__(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def work(self) -> None:
        x = torch.zeros(4, 3)
        x.numpy()[:] = 1.0
        self.backward(self.model(x).square().sum())
        self.optimizer.step()


def test_a_step_with_hidden_state_is_not_replayable(tmp_path: Path) -> None:
    with running(tmp_path, "0") as run:
        run.step(Outside(), 0)
    noise = run.noise(0)
    assert not noise["equal"] and "loss 0" in noise["differs"] and "different bits" in noise["reason"]
    assert run.files() == ["noise-000000.json"]


@pytest.mark.parametrize(
    ("mode", "device", "words"),
    [("cpu", "lazy", "on lazy, an op has no value")],
)
def test_modes_without_tapes_say_so(mode: str, device: str, words: str, tmp_path: Path) -> None:
    with running(tmp_path, mode=mode, device=device) as run:
        training = started("sam", 0)
        run.step(training, 0)
        run.step(training, 1)
    assert words in run.noise(1)["reason"] and run.files() == ["noise-000001.json"]


class Compiled(Training):
    """A part of the model is compiled, at the first step."""

    def __init__(self) -> None:
        model = nn.Linear(3, 3)
        super().__init__(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.part: Any = None

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x).tanh() * 2

    def work(self) -> None:
        self.optimizer.zero_grad()
        if self.part is None:
            self.part = torch.compile(self.forward, backend="aot_eager")
        self.backward(self.part(torch.ones(2, 3)).square().sum())
        self.optimizer.step()


def test_a_compiled_region_is_opaque_and_stays_what_it_is(tmp_path: Path) -> None:
    # given
    torch.manual_seed(0)
    twin = Compiled()
    expected = [twin.values() for _ in range(3)]
    # when
    torch.manual_seed(0)
    with running(tmp_path, "0-2") as run:
        training = Compiled()
        found = [run.step(training, number) for number in range(3)]
    # then
    for step, values in zip(found, expected, strict=True):
        assert all(is_same(step[name], value) for name, value in values.items())
    assert all("torch.compile compiles a part" in run.noise(number)["reason"] for number in range(3))


class Idle(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_scripts_own_is_left_in_peace(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        training = started("sam", 0)
        with Idle():  # type: ignore[no-untyped-call]
            run.step(training, 1)
    assert run.noise(1)["reason"] == "a torch dispatch mode of the script is active (Idle)"


def test_a_failure_is_a_notice_and_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numdrift.harness.observers.experiments.tape_recording.write_tape", fail)
    with running(tmp_path) as run:
        run.step(started("sam", 0), 1)
    assert "No space left" in run.noise(1)["reason"] and len(run.notices) == 1


def test_a_failure_that_cannot_even_be_written_is_a_notice(tmp_path: Path) -> None:
    (tmp_path / "tapes").write_text("in the way")
    with running(tmp_path) as run:
        seen = run.step(started("sam", 0), 1)
    assert seen and "cannot be written" in run.notices[-1]

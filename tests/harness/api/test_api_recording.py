"""`numdrift.record` in this very process: what is recorded, and that nothing of it stays."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config
from torch import nn
from torch.optim.optimizer import Optimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks

import numdrift
from numdrift.harness.api.plotting import drawn
from numdrift.harness.errors import CollisionError, ModeError, UsageError
from numdrift.harness.script.script_api import connection
from numdrift.harness.torch_private.dispatching import dispatch_modes

STEPS = 4


class Training:
    """A model that was used before, and a training of it that begins anew each time."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
        self.model(torch.ones(1, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.start = {name: value.clone() for name, value in self.model.state_dict().items()}

    def __call__(self, fails_at: int | None = None) -> list[float]:
        self.model.load_state_dict(self.start)
        torch.manual_seed(1)
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        losses = []
        for step in range(STEPS):
            loss = (self.model(x) - y).square().mean()
            loss.backward()
            if step == fails_at:
                raise ValueError("out of luck")
            self.optimizer.step()
            self.optimizer.zero_grad()
            numdrift.log(twice=loss * 2)
            losses.append(loss.item())
        return losses

    @property
    def bits(self) -> dict[str, bytes]:
        return {name: value.numpy().tobytes() for name, value in self.model.state_dict().items()}


@pytest.fixture
def training() -> Training:
    return Training()


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Every test leaves torch and the environment as they were, by identity."""
    before, variables = places(), own_variables()
    yield
    after = places()
    assert all(one is other for one, other in zip(before[0], after[0], strict=True))
    assert before[1] == after[1]
    assert own_variables() == variables
    assert connection.listener is None


def own_variables() -> dict[str, str]:
    """The environment without what pytest and Inductor keep in it."""
    theirs = ("PYTEST_", "_TORCHINDUCTOR_", "TORCHINDUCTOR_CACHE_DIR")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)}


def places() -> tuple[list[Any], list[Any]]:
    """What recordings and modes replace, to be compared by identity, and what they add to or set."""
    replaced = [
        nn.Module.__dict__["__call__"],
        Optimizer.__dict__["__init__"],
        torch.autograd.backward,
        torch.autograd.grad,
        torch.func.grad,
        torch.func.grad_and_value,
        torch.compile,
        torch.amp.GradScaler.scale,
        torch.amp.GradScaler.step,
        torch._lazy.mark_step if hasattr(torch, "_lazy") else None,
    ]
    added = [
        dict(_global_optimizer_pre_hooks),
        dict(_global_optimizer_post_hooks),
        torch.get_num_threads(),
        len(dispatch_modes()),
    ]
    return replaced, added


def test_a_recording_has_the_losses_and_parameters_of_the_bare_training(training: Training, tmp_path: Path) -> None:
    # given
    bare, bits = training(), training.bits
    # when
    with numdrift.record(out=tmp_path, name="study") as recording:
        recorded = training()
    # then
    run = recording.run
    assert recorded == bare and training.bits == bits
    assert run.manifest.status == "complete" and run.manifest.in_process
    assert run.losses().tolist() == bare and list(run.losses().index) == list(range(STEPS))
    assert run.logged()["twice"].tolist() == [2 * loss for loss in bare]
    assert {name: value.tobytes() for name, value in run.parameters().items()} == bits
    assert [one["module"] for one in run.journal.events("adopted")] == ["Sequential"]
    assert [step for step, _ in run.journal.hyper()] == [0]
    assert numdrift.read_pickle(tmp_path / "study" / "verify_cpu.pkl")["losses"] == bare


def test_digests_are_those_of_the_values(training: Training, tmp_path: Path) -> None:
    with numdrift.record(out=tmp_path, name="study") as recording:
        training()
    frame = recording.run.digests()
    for step in (0, STEPS - 1):
        for name, value in recording.run.parameters(step).items():
            row = frame.xs((name, "value", step))
            assert (row["min"], row["max"]) == (value.min(), value.max())
            assert row["l2"] == pytest.approx(float((value.astype("float64") ** 2).sum() ** 0.5))
            assert row["numel"] == value.size
    assert len(frame) == 2 * 4 * STEPS  # values and gradients
    with pytest.raises(UsageError, match="after step 99 were not kept; kept steps: 0, 1, 2, 3"):
        recording.run.parameters(99)


@pytest.fixture
def autograd_cache_off() -> Iterator[None]:
    """Compile the backward of each graph: a graph that is in autograd's cache comes with it.

    torch's configuration loses a setting that pytest's monkeypatch puts back, so `monkeypatch` is no help here.
    """
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("autograd_cache_off")
def test_modes_follow_each_other_in_one_process(training: Training, tmp_path: Path) -> None:
    # given the same training in cpu, in compile with another kernel, in compile as it is, and in cpu again
    bare = training()
    runs = {}
    for mode in ("cpu", "swapped=compile,kernel.tanh_backward=bf16", "compile", "again=cpu"):
        with numdrift.record(mode, tmp_path, "study") as recording:
            training()
        runs[recording.run.manifest.mode] = recording.run
        assert "_compiled_call_impl" not in vars(training.model)
        assert training() == bare  # eager again, with torch's kernels
    # then each was recorded in its mode, and nothing of one has gone into another
    compared = {name: numdrift.compare(runs["cpu"], run) for name, run in runs.items() if name != "cpu"}
    assert compared["again"].identical and compared["again"].losses()["absolute"].max() == 0
    assert compared["swapped"].losses()["relative"].max() > 1e-5
    assert compared["compile"].losses()["relative"].max() < 1e-5
    assert runs["swapped"].manifest.swaps[0]["calls"]["backward"] == STEPS
    assert all(run.journal.events("notice") == [] for run in runs.values())
    # and what is compiled was told while it was: a forward and its backward
    told = {name: [one["backward"] for one in run.journal.events("compiling")] for name, run in runs.items()}
    assert told == {"cpu": [], "swapped": [False, True], "compile": [False, True], "again": []}
    assert len(runs["compile"].journal.events("compiled")) == 2


def test_an_exception_goes_on_and_is_recorded(training: Training, tmp_path: Path) -> None:
    recording = numdrift.record(out=tmp_path, name="study")
    with pytest.raises(ValueError, match="out of luck"), recording:
        training(fails_at=2)
    training.optimizer.zero_grad()
    manifest = recording.run.manifest
    assert (manifest.status, manifest.steps, manifest.exit_code) == ("crashed", 2, 1)
    assert manifest.message.startswith("ValueError: out of luck (") and __file__ in manifest.message


def test_ctrl_c_is_recorded_as_such(training: Training, tmp_path: Path) -> None:
    recording = numdrift.record(out=tmp_path, name="study")
    with pytest.raises(KeyboardInterrupt), recording:
        training()
        raise KeyboardInterrupt
    assert (recording.run.manifest.status, recording.run.manifest.steps) == ("killed", STEPS)


def test_a_loop_of_ones_own_says_its_steps(tmp_path: Path) -> None:
    weight, losses = torch.ones(3), []
    with numdrift.record(out=tmp_path, name="study") as recording:
        for _ in numdrift.steps(range(3)):
            loss = weight.square().sum()
            weight = weight - 0.1 * 2 * weight
            recording.log(loss=loss)
            losses.append(float(loss))
    assert recording.run.losses().tolist() == losses


def test_two_optimizers_that_take_turns_have_a_loss_each(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sides = [nn.Linear(3, 1), nn.Linear(3, 1)]
    optimizers = [torch.optim.SGD(side.parameters(), lr=0.1) for side in sides]
    losses: list[list[float]] = [[], []]
    with numdrift.record(out=tmp_path, name="study") as recording:
        for turn in (0, 1, 0, 0, 1):
            loss = sides[turn](torch.ones(3)).square().sum() + turn
            loss.backward()
            losses[turn].append(loss.item())
            optimizers[turn].step()
            optimizers[turn].zero_grad()
    series = recording.run.journal.series()
    assert {name: [one.loss for one in steps] for name, steps in series.items()} == {
        "optimizer 1": losses[0],
        "optimizer 2": losses[1],
    }
    assert [one.step for one in series["optimizer 2"]] == [1, 4]
    figures, _ = drawn("study", tmp_path, "loss", (), None)
    [legend] = next(iter(figures.values())).legends
    assert [text.get_text() for text in legend.get_texts()] == ["cpu, optimizer 1", "cpu, optimizer 2"]
    # two optimizers of one loss have one curve
    with numdrift.record(out=tmp_path, name="together") as recording:
        sum(side(torch.ones(3)).square().sum() for side in sides).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert list(recording.run.journal.series()) == [""]


def test_recordings_do_not_nest(training: Training, tmp_path: Path) -> None:
    with numdrift.record(out=tmp_path, name="outer") as outer:
        with pytest.raises(UsageError, match="this process is already recording"):
            numdrift.record(out=tmp_path, name="inner").__enter__()
        with pytest.raises(UsageError, match="the recording has not ended"):
            _ = outer.run
        training()
    assert outer.run.manifest.steps == STEPS
    assert not (tmp_path / "inner").exists()


@pytest.mark.parametrize("mode", ["cpu,env.A=1", "cpu,timeout=3", "cpu,python=python3", "cpu,dtype=float64"])
def test_what_needs_a_process_is_refused(mode: str, tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="needs a separate process"),
        numdrift.record(mode, tmp_path, "study"),
    ):
        pass
    assert not (tmp_path / "study").exists()


def test_wrong_modes_kernels_and_names_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ModeError, match="did you mean 'cpu'"):
        numdrift.record("cpuu", tmp_path, "study")
    with pytest.raises(UsageError, match="tanh_backward"):
        numdrift.record("cpu,kernel.tanh_backward=best", tmp_path, "study")
    with pytest.raises(UsageError, match="cannot be part of a file name"):
        numdrift.record("cpu", tmp_path, "a/b")
    assert not list(tmp_path.iterdir())


def test_no_file_of_a_recording_stays_open(training: Training, tmp_path: Path) -> None:
    with numdrift.record("cpu", out=tmp_path / "study", record="ops"):
        training()
    gc.collect()
    opened = [descriptor.resolve() for descriptor in Path("/proc/self/fd").iterdir()]
    assert not [file for file in opened if file.is_relative_to(tmp_path)]


def test_a_run_is_replaced_by_force_alone(training: Training, tmp_path: Path) -> None:
    for force in (False, True):
        with numdrift.record(out=tmp_path, name="study", force=force):
            training()
    with pytest.raises(CollisionError, match="exists already"):
        numdrift.record(out=tmp_path, name="study")


def test_settings_of_the_mode_end_with_it(training: Training, tmp_path: Path) -> None:
    from torch._inductor import config

    before = config.cpp.simdlen, config.fallback_random, torch.get_num_threads()
    mode = "compile,threads=1,fallback_random=on,inductor.cpp.simdlen=1"
    with numdrift.record(mode, tmp_path, "study"):
        assert (config.cpp.simdlen, config.fallback_random, torch.get_num_threads()) == (1, True, 1)
    assert (config.cpp.simdlen, config.fallback_random, torch.get_num_threads()) == before


def test_what_cannot_be_repeated_is_not_investigated(training: Training, tmp_path: Path) -> None:
    runs = []
    for mode in ("cpu", "b=cpu"):
        with numdrift.record(mode, tmp_path, "study") as recording:
            training()
        runs.append(recording.run)
    with pytest.raises(UsageError, match="was recorded within a running process"):
        numdrift.localize(runs[0], runs[1])
    with pytest.raises(UsageError, match="was recorded within a running process"):
        numdrift.investigate(tmp_path / "study", out=tmp_path)

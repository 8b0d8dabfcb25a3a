"""A recording that has ended leaves every name of torch as it was, however often one begins in the same
process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # which replaces functions of torch itself when it is first imported
from torch import nn
from torch.optim.optimizer import Optimizer, _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from numdrift.harness.errors import AlreadyPatched
from numdrift.harness.recorder.session import Session
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.script.script_api import connection
from numdrift.harness.torch_private.dispatching import dispatch_modes
from numdrift.harness.torch_private.patches import Patches, patched_names

ALL = StepSelection(((0, None),))
TIMES = 20

KNOWN: list[tuple[Any, str]] = [
    (nn.Module, "__call__"),
    (nn.Module, "to"),
    (nn.Module, "cuda"),
    (nn.Module, "compile"),
    (Optimizer, "__init__"),
    (torch.autograd, "backward"),
    (torch.autograd, "grad"),
    (torch.func, "grad"),
    (torch.func, "grad_and_value"),
    (torch, "compile"),
    (torch, "Generator"),
    (torch, "autocast"),
    (torch, "set_default_device"),
    (torch, "manual_seed"),
    (torch.autocast, "__init__"),
    (torch.amp, "custom_fwd"),
    (torch.amp.GradScaler, "__init__"),
    (torch.amp.GradScaler, "scale"),
    (torch.amp.GradScaler, "step"),
    (torch.Tensor, "to"),
    (torch.Tensor, "cuda"),
    (torch.Tensor, "type"),
    (torch.Tensor, "pin_memory"),
    (torch.Tensor, "record_stream"),
    (torch.Tensor, "__reduce_ex__"),
    *((torch.cuda, name) for name in sorted(vars(torch.cuda)) if not name.startswith("__")),
]

MODES = [
    pytest.param("cpu", TIMES, id="cpu"),
    pytest.param("compile,backend=aot_eager", 4, id="compile"),
    pytest.param("lazy", 4, id="lazy"),
]


def found(names: list[tuple[Any, str]]) -> list[Any]:
    """What is there under each name: of a class or module what it has itself, of others what they give."""
    return [vars(holder).get(name, None) for holder, name in names] + [getattr(holder, name) for holder, name in names]


def hooks() -> list[Any]:
    return [
        dict(_global_optimizer_pre_hooks),
        dict(_global_optimizer_post_hooks),
        dict(torch.nn.modules.module._global_forward_hooks),
        dict(torch.nn.modules.module._global_forward_pre_hooks),
        len(dispatch_modes()),
        connection.listener,
        list(torch.serialization._package_registry),
    ]


def everything(run: Path, mode: str) -> RunConfig:
    """A recording with all that can be asked of one at a time in this mode."""
    (run / "journal").mkdir(parents=True)
    return RunConfig(
        script=__file__,
        mode=parse_mode(mode),
        journal=str(run / "journal"),
        record="ops",
        states=ALL,
        outcomes=ALL,
        tapes=ALL,
        noise_replays=1,
        graphs=True,
        instruments={"metrics": {}},
    )


def record(config: RunConfig) -> list[tuple[Any, str]]:
    """Train and record; gives the names that were replaced meanwhile."""
    session = Session(config)
    session.open(frozenset())
    assert session._recorder is not None
    session._recorder.adoption.redirect()
    try:
        device = torch.device("lazy" if config.mode.base == "lazy" else "cpu")
        model = nn.Sequential(nn.Linear(3, 2)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 3, device=device)).square().mean().backward()
            optimizer.step()
        return patched_names()
    finally:
        session._recorder.adoption.close()
        session.close(None)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "times"), MODES)
def test_recordings_leave_every_name_as_it_was(mode: str, times: int, tmp_path: Path) -> None:
    # given
    known, there = found(KNOWN), hooks()
    patched = record(everything(tmp_path / "first", mode))
    assert len(patched) > 60
    assert (torch, "compile") in patched and (nn.Module, "__call__") in patched
    before = found(patched)
    for number in range(1, times):
        # when
        again = record(everything(tmp_path / str(number), mode))
        # then
        assert len(again) == len(patched)
        assert all(one is other for one, other in zip(found(patched), before, strict=True))
        assert patched_names() == []
    assert all(one is other for one, other in zip(found(KNOWN), known, strict=True))
    assert hooks() == there


def test_a_recording_that_cannot_begin_leaves_nothing_patched(tmp_path: Path) -> None:
    # given
    known, there = found(KNOWN), hooks()
    somebody = Patches("somebody else")
    somebody.replace(torch.nn.Module, "compile", lambda module: None)
    session = Session(everything(tmp_path / "run", "cpu"))
    # when
    with pytest.raises(AlreadyPatched, match=r"Module\.compile is already replaced by somebody else"):
        session.open(frozenset())
    # then
    assert patched_names() == [(torch.nn.Module, "compile")]
    somebody.undo()
    assert all(one is other for one, other in zip(found(KNOWN), known, strict=True))
    assert hooks() == there


COMPILED_LATER = """
import sys
import torch
from numdrift.harness.recorder.session import Session
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig

session = Session(RunConfig(script=__file__, mode=parse_mode("compile,backend=eager"), journal=sys.argv[1]))
session.open(frozenset())
model = torch.nn.Linear(3, 2)
model(torch.ones(4, 3)).square().mean().backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
session.close(None)

def with_gradient(x):
    y = torch.tanh(x)
    return y, torch.autograd.grad(y, x, torch.ones_like(y))[0]

y, gradient = torch.compile(with_gradient, backend="aot_eager")(torch.linspace(-1, 1, 6, requires_grad=True))
assert torch.allclose(gradient, 1 - y**2)
"""


@pytest.mark.slow
def test_what_is_compiled_after_a_recording_is_traced_as_without_one(tmp_path: Path) -> None:
    # given a process in which dynamo first meets torch's functions while a recording has replaced some
    script = tmp_path / "later.py"
    script.write_text(COMPILED_LATER)
    (tmp_path / "journal").mkdir()
    # when
    done = subprocess.run(
        [sys.executable, script, tmp_path / "journal"], capture_output=True, text=True, timeout=120, check=False
    )
    # then
    assert done.returncode == 0, done.stderr

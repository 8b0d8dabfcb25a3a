"""A training with all that a state consists of, and runs of it in processes of their own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.processes.forked import nursery, python
from tests.processes.nursery import is_alike

from numdrift.harness.launch.guest_process import Launch, environment, guest_command, start
from numdrift.harness.records import frames
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.runs.journal import Journal
from numdrift.harness.runs.mapped_tensors import TensorFile, read_tensor_file

ROOT = Path(__file__).parents[3]
ALL = StepSelection(((0, None),))
STEPS = 9

SCRIPT = """
import os, random, sys
import numpy as np
import torch
from torch import nn
sys.path.insert(0, os.environ["REPRODUCERS"])
from sam import SAM

device = torch.device(os.environ.get("DEVICE", "cpu"))
if device.type == "lazy":
    import torch._lazy, torch._lazy.ts_backend
    torch._lazy.ts_backend.init()
mark = (lambda: torch._lazy.mark_step()) if device.type == "lazy" else (lambda: None)
disturbed = int(os.environ.get("DISTURBED", "-1"))
torch.manual_seed(0), random.seed(0), np.random.seed(0)
data, target = torch.randn(64, 6), torch.randn(64, 1)
kept, step = {}, 0

def keep(what, values):
    if "--keep" in sys.argv:
        kept.update({f"{step} {what} {name}": one.detach().numpy().copy() for name, one in values})

def disturb(model, optimizer):
    torch.rand(3), random.random(), np.random.rand()
    optimizer.param_groups[0]["lr"] *= 2
    with torch.no_grad():
        for one in model.parameters():
            one.add_(0.01)
        for state in optimizer.state.values():
            for value in state.values():
                value.mul_(1.5)

def train(model, optimizer, schedule):
    global step
    for _ in range(3):
        keep("begin", model.state_dict().items())
        rows = torch.randperm(64)[:16]
        x = data[rows].to(device) * random.random() + np.random.rand()
        y = target[rows].to(device)
        passes = []

        def closure():
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            mark()
            keep(f"gradient {len(passes)}", [(n, p.grad) for n, p in model.named_parameters()])
            passes.append(loss)
            return loss

        if isinstance(optimizer, SAM):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        mark()
        schedule.step()
        keep("end", model.state_dict().items())
        if step == disturbed:
            disturb(model, optimizer)
        print(step, *(loss.item().hex() for loss in passes))
        step += 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(nn.functional.dropout(torch.tanh(self.norm(self.first(x))), 0.3))

def make():
    model = Net().to(device)
    if "--compile" in sys.argv:
        model.compile()
    return model

optimizers = [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.AdamW(p, lr=0.01),
    lambda p: SAM(p, torch.optim.SGD, lr=0.1, momentum=0.9),
]
models = []  # keeps them alive: when a compiled model goes is up to the garbage collector
for of in optimizers:
    model = make()
    models.append(model)
    optimizer = of(model.parameters())
    train(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5))
    print(*(one.cpu().numpy().tobytes().hex() for one in model.state_dict().values()))
if "--keep" in sys.argv:
    np.savez(sys.argv[-1], **kept)
"""


def write_script(folder: Path) -> Path:
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return path


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    path: Path
    exit_code: int

    @property
    def printed(self) -> str:
        return (self.path / "stdout.log").read_text()

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.path / "journal")

    @property
    def notices(self) -> list[str]:
        return [event["text"] for event in self.journal.events("notice")]

    @property
    def states(self) -> dict[int, TensorFile]:
        return {_step(path): read_tensor_file(path) for path in sorted((self.path / "states").glob("*"))}

    @property
    def outcomes(self) -> dict[int, TensorFile]:
        return {_step(path): read_tensor_file(path) for path in sorted((self.path / "outcomes").glob("*"))}


def _step(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def run(script: Path, folder: Path, mode: str, arguments: tuple[str, ...] = (), **options: Any) -> Ran:
    """Record the script in a mode; `options` are those of RunConfig."""
    (folder / "journal").mkdir(parents=True)
    spec = parse_mode(f"{mode},env.REPRODUCERS={ROOT / 'reproducers'}")
    config = RunConfig(str(script), spec, str(folder / "journal"), arguments, **options)
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    logs = folder / "stdout.log", folder / "stderr.log"
    launch = Launch("run", spec, folder / "config.json", folder / "journal" / frames.EVENTS, *logs)
    given = environment(spec, os.environ)
    ready = nursery(given.get("OMP_NUM_THREADS", ""))
    if not is_alike(given, ready.environment):
        return Ran(folder, start(launch).wait(300))
    done = ready.run(guest_command(launch.config)[1:], cwd=Path.cwd(), env=given, timeout=300)
    for log, said in zip(logs, (done.stdout, done.stderr), strict=True):
        log.write_bytes(said)
    return Ran(folder, done.returncode)


def plain(script: Path, device: str, *arguments: str) -> str:
    """What the script prints in plain Python."""
    reproducers = str(ROOT / "reproducers")
    done = python(Path.cwd(), script, *arguments, DEVICE=device, PYTHONHASHSEED="0", REPRODUCERS=reproducers)
    done.check_returncode()
    return done.stdout


def differing(one: TensorFile, other: TensorFile) -> list[str]:
    """The names of what is not there in both, bit for bit."""
    a, b = one.tensors, other.tensors
    return [
        name
        for name in sorted(set(a) | set(b))
        if name not in a or name not in b or a[name].tobytes() != b[name].tobytes()
    ]

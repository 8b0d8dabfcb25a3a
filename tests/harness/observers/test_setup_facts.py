from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.harness.recorder.trainings import Ran, plain, run

from numdrift.harness.observers.values.digest import Digester
from numdrift.harness.records.values.digest_record import unpack
from numdrift.harness.runs.journal import StepRecord

STEPS = 5
SCRIPT = f"""
import os, random, sys
import numpy as np
import torch
from torch import nn

device, changed = os.environ.get("DEVICE", "cpu"), sys.argv[1]
mark = lambda: None
if device == "lazy":
    import torch._lazy, torch._lazy.ts_backend, torch._lazy.metrics
    torch._lazy.ts_backend.init()
    mark = lambda: torch._lazy.mark_step()

def work():
    if device == "lazy":
        return [torch._lazy.metrics.counter_value(n) for n in ("MarkStep", "CachedCompile", "UncachedCompile")]
    return [(n, dict(torch._dynamo.utils.counters[n])) for n in ("stats", "graph_break")]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x, more):
        return self.last(torch.tanh(self.norm(self.first(x)) * more["scale"][0]))

torch.manual_seed(0), random.seed(0), np.random.seed(0)
net, criterion = Net().to(device), nn.MSELoss()
if "--compile" in sys.argv:
    net.compile()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
data = torch.randn(64, 4)
scale = torch.full((), 2.0).to(device)
for step in range({STEPS}):
    rows = torch.randperm(64)[:16]
    x = (data[rows] + (changed == "batch" and step == 3)).to(device)
    if changed == "lr" and step == 3:
        optimizer.param_groups[0]["lr"] = 0.02
    if changed == "python" and step == 1:
        random.random()
    if changed == "numpy" and step == 1:
        np.random.rand()
    for _ in range(2):
        loss = criterion(net(x, more={{"scale": [scale]}}), torch.zeros(16, 1).to(device))
        loss.backward()
        mark()
    optimizer.step()
    optimizer.zero_grad()
    mark()
    print(step, loss.item().hex(), *work())
print(*(one.detach().cpu().numpy().tobytes().hex() for one in net.state_dict().values()))
"""
MODES = {"cpu": ("cpu",), "compile": ("cpu", "--compile"), "lazy": ("lazy",)}
Record = Callable[..., Ran]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("setup") / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def ran(script: Path) -> Record:
    """Record the script, changed in some way, in a mode; each once."""

    @functools.cache
    def record(mode: str, changed: str) -> Ran:
        found = run(script, script.parent / f"{mode}-{changed}", mode, (changed,))
        assert found.exit_code == 0, (found.path / "stderr.log").read_text()
        return found

    return lambda mode, changed="nothing": record(mode, changed)


def hash_of(tensor: torch.Tensor) -> str:
    return f"{unpack(Digester(native=False).digest([tensor])).hash:016x}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_recording_the_setup_changes_no_bit_no_graph_and_no_compilation(mode: str, ran: Record, script: Path) -> None:
    device, *flags = MODES[mode]
    assert ran(mode).printed == plain(script, device, "nothing", *flags)
    assert not [text for text in ran(mode).notices if "fail" in text]


@pytest.mark.slow
def test_the_batches_are_what_the_script_draws(ran: Record) -> None:
    # given the same draws made here
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
        generator.set_state(torch.get_rng_state())
    data = torch.randn(64, 4, generator=generator)
    for record in ran("cpu").journal.steps:
        x = data[torch.randperm(64, generator=generator)[:16]]
        call = (("float32", (16, 4), hash_of(x)), ("float32", (), hash_of(torch.tensor(2.0))))
        # then each step has two calls with them; the loss's own call is not a root module's
        assert record.batches == (call, call)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compile", "lazy"])
def test_all_modes_start_from_the_same(mode: str, ran: Record) -> None:
    ours, theirs = ran("cpu").journal, ran(mode).journal
    assert len(ours.steps) == STEPS
    assert all(set(record.generators) == {"torch", "python", "numpy"} for record in ours.steps)
    assert [record.generators for record in ours.steps] == [record.generators for record in theirs.steps]
    assert [record.batches for record in ours.steps] == [record.batches for record in theirs.steps]
    assert ours.initial() == theirs.initial() and ours.hyper() == theirs.hyper()
    assert all(one.digest.readable for one in ours.initial().values())


@pytest.mark.slow
def test_the_initial_values_are_those_before_the_first_step(ran: Record) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, norm, last = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)
    model = torch.nn.ModuleDict({"first": first, "norm": norm, "last": last})
    found = ran("cpu").journal.initial()
    assert {name: f"{one.digest.hash:016x}" for name, one in found.items()} == {
        name: hash_of(tensor) for name, tensor in model.state_dict().items()
    }
    assert (found["norm.running_var"].kind, found["first.weight"].kind) == ("buffer", "parameter")
    assert (found["first.weight"].shape, found["norm.num_batches_tracked"].dtype) == ((8, 4), "int64")


def differing(one: Ran, other: Ran, read: Callable[[StepRecord], Any]) -> list[int]:
    """The steps in which something differs."""
    pairs = zip(one.journal.steps, other.journal.steps, strict=True)
    return [a.step for a, b in pairs if read(a) != read(b)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "batches", "python", "numpy", "hyper"),
    [
        ("nothing", [], [], [], []),
        ("batch", [3], [], [], []),
        ("lr", [], [], [], [3]),
        ("python", [], [2, 3, 4], [], []),
        ("numpy", [], [], [2, 3, 4], []),
    ],
)
def test_a_change_of_the_setup_shows_where_it_was_made_and_nowhere_else(
    changed: str, batches: list[int], python: list[int], numpy: list[int], hyper: list[int], ran: Record
) -> None:
    a, b = ran("cpu"), ran("cpu", changed)
    assert differing(a, b, lambda record: record.batches) == batches
    assert differing(a, b, lambda record: record.generators["torch"]) == []
    assert differing(a, b, lambda record: record.generators["python"]) == python
    assert differing(a, b, lambda record: record.generators["numpy"]) == numpy
    assert a.journal.initial() == b.journal.initial()
    assert [step for step, _ in b.journal.hyper()] == [0, *hyper]
    [group] = b.journal.hyper()[-1][1][0]["groups"]
    assert group["lr"] == (0.02 if hyper else 0.01) and group["betas"] == [0.9, 0.999]
    assert group["params"][:2] == ["first.weight", "first.bias"]


PENDING = """
import torch, torch._lazy, torch._lazy.ts_backend
torch._lazy.ts_backend.init()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1, device="lazy")
data = torch.arange(32.0).view(8, 4).to("lazy")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    kept = data[step : step + 2] * 2
    loss = (model(kept) + model(data[step : step + 2] * 3)).mean()
    loss.backward()
    torch._lazy.mark_step()
    optimizer.step()
    torch._lazy.mark_step()
"""


@pytest.mark.slow
def test_what_a_lazy_graph_has_yet_to_compute_is_read_once_it_is_there(tmp_path: Path) -> None:
    # given a model initialised on the device, and arguments of which the script keeps one
    script = tmp_path / "train.py"
    script.write_text(PENDING)
    # when
    journal = run(script, tmp_path / "run", "lazy").journal
    # then
    data = torch.arange(32.0).view(8, 4)
    for record in journal.steps:
        rows = data[record.step : record.step + 2]
        assert record.batches == ((("float32", (2, 4), hash_of(rows * 2)),), (("float32", (2, 4), ""),))
    assert len(journal.steps) == 3 and journal.initial()["weight"].digest.readable


@pytest.mark.slow
def test_initial_values_that_are_gone_before_they_can_be_read_are_called_unreadable(tmp_path: Path) -> None:
    # given a policy under which nothing is executed before the parameters change
    script = tmp_path / "train.py"
    script.write_text(PENDING)
    # when
    journal = run(script, tmp_path / "run", "lazy,mark_step=step").journal
    # then
    weight = journal.initial()["weight"]
    assert not weight.digest.readable and weight.shape == (1, 4) and weight.digest.numel == 4


COMPILING = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_of = lambda x: model(x).square().mean()
for step in range(5):
    if step == 2:
        loss_of = torch.compile(loss_of, backend="eager")
    loss_of(torch.ones(2, 4)).backward()
    optimizer.step()
print({name: dict(torch._dynamo.utils.counters[name]) for name in ("frames", "stats", "graph_break")})
"""


@pytest.mark.slow
def test_in_an_eager_mode_a_function_that_the_script_compiles_stays_eager_and_is_seen(tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(COMPILING)
    # when
    found = run(script, tmp_path / "run", "cpu")
    # then
    assert "'total': 1" in plain(script, "cpu")
    assert found.printed == "{'frames': {}, 'stats': {}, 'graph_break': {}}\n"
    assert not found.notices
    assert [len(record.batches) for record in found.journal.steps] == [1] * 5
    assert all(record.generators for record in found.journal.steps)


BARE = """
import torch
weight = torch.ones(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.5))
for step in range(3):
    optimizer.param_groups[0]["lr"].mul_(0.5) if step == 2 else None
    weight.square().sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_training_without_modules_has_a_setup_too(tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(BARE)
    # when
    journal = run(script, tmp_path / "run", "cpu", record="ops").journal
    # then
    [(name, one)] = journal.initial().items()
    assert (name, f"{one.digest.hash:016x}") == ("weight", hash_of(torch.ones(3)))
    assert [(step, found[0]["groups"][0]["lr"]) for step, found in journal.hyper()] == [(0, 0.5), (2, 0.25)]
    assert [record.batches for record in journal.steps] == [(), (), ()]
    assert all(record.generators for record in journal.steps)


AVERAGED = """
import sys
import torch
from torch.optim.swa_utils import AveragedModel

model = torch.nn.Linear(4, 1)
average = AveragedModel(model)
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    if step == 2 and "reload" in sys.argv:
        optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
    average.update_parameters(model)
    average(torch.ones(2, 4))
"""


@pytest.mark.slow
def test_an_optimizer_that_is_loaded_makes_no_other_tensor_an_initial_one(tmp_path: Path) -> None:
    script = tmp_path / "averaged.py"
    script.write_text(AVERAGED)
    names = ("plain", "reload")
    initial = [
        sorted(run(script, tmp_path / name, "cpu", (name,), record="params").journal.initial()) for name in names
    ]
    assert initial == [["bias", "weight"]] * 2


@pytest.mark.slow
def test_below_the_level_of_parameters_no_setup_is_recorded(script: Path, tmp_path: Path) -> None:
    journal = run(script, tmp_path / "run", "cpu", ("nothing",), record="losses").journal
    assert not journal.initial() and not journal.hyper() and len(journal.steps) == STEPS
    assert all(not record.generators and not record.batches for record in journal.steps)


DROPPING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.last(nn.functional.dropout(torch.tanh(nn.functional.dropout(self.first(x), 0.2)), 0.5))

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(32, 8)
for _ in range(5):
    optimizer.zero_grad()
    (net(x) - x.sum(1, keepdim=True).tanh()).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_compiled_dropout_draws_eagers_masks_only_with_fallback_random(tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(DROPPING)
    # when
    eager, compiled, falling_back = (
        run(script, tmp_path / str(number), mode).journal
        for number, mode in enumerate(("cpu", "compile", "compile,fallback_random=on"))
    )
    # then
    assert falling_back.losses == pytest.approx(eager.losses, rel=1e-5)
    assert [one.generators for one in falling_back.steps] == [one.generators for one in eager.steps]
    # and without it, other masks from the first step on, and a generator that is elsewhere after it
    assert abs(compiled.losses[0] - eager.losses[0]) > 1e-3
    ours, theirs = ([one.generators["torch"] for one in journal.steps] for journal in (compiled, eager))
    assert [a == b for a, b in zip(ours, theirs, strict=True)] == [True, False, False, False, False]

"""A script is started as Python would start it: as a file, as a module, with its streams, signals and exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from numdrift import load_run

from ..conftest import Numdrift
from ..processes.forked import python_bytes

TRAIN = """
import sys
{imports}
import pickle
import torch

class Kept:
    pass

if __name__ == "__main__":
    spec = None if __spec__ is None else __spec__.name
    print(sys.argv, __file__, __package__, spec, sys.path[0], __name__)
    print("to stderr\\r", file=sys.stderr)
    assert type(pickle.loads(pickle.dumps(Kept()))) is Kept
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.randn(4, 2)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
    sys.exit({code})
"""


def package(folder: Path) -> None:
    (folder / "pkg/sub").mkdir(parents=True)
    (folder / "pkg/__init__.py").write_text("")
    (folder / "pkg/sub/__init__.py").write_text("")
    (folder / "pkg/sub/names.py").write_text("NAME = 'net'\n")
    (folder / "pkg/train.py").write_text(TRAIN.format(imports="from .sub.names import NAME", code=0))


@pytest.mark.slow
def test_a_module_runs_as_python_runs_it(numdrift: Numdrift, tmp_path: Path) -> None:
    package(tmp_path)
    bare = python_bytes(tmp_path, "-m", "pkg.train", "--epochs", "3", PYTHONHASHSEED="0")
    done = numdrift("run", "-m", "pkg.train", "--modes", "cpu", "--strict", "--", "--epochs", "3")
    assert (bare.returncode, done.returncode) == (0, 0), done.stderr
    run = tmp_path / "runs/train/cpu"
    assert (run / "stdout.log").read_bytes() == bare.stdout
    assert (run / "stderr.log").read_bytes() == bare.stderr
    losses = [float(line) for line in bare.stdout.splitlines()[1:]]
    assert [step.loss for step in load_run(run).journal.steps] == pytest.approx(losses, rel=1e-7)
    assert load_run(run).manifest.module == "pkg.train"
    assert "loss        the tensor that backward() starts from (train.py:" in done.stderr
    assert "parameters  Linear: 2 parameters with 3 values" in done.stderr


@pytest.mark.slow
def test_passed_through_a_script_is_as_under_python(numdrift: Numdrift, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(imports="print(sys.stdin.read())", code=5))
    bare = subprocess.run(
        [sys.executable, "train.py", "-x"], cwd=tmp_path, input=b"words", capture_output=True, check=False
    )
    command = [sys.executable, "-m", "numdrift", "run", "train.py", "--modes", "cpu", "--pass-through"]
    done = subprocess.run([*command, "--", "-x"], cwd=tmp_path, input=b"words", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (5, bare.stdout, bare.stderr)
    assert b"words" in done.stdout
    assert (tmp_path / "runs/train/cpu/stdout.log").read_bytes() == bare.stdout
    assert numdrift("run", "train.py", "--modes", "cpu,lazy", "--pass-through").returncode == 2


SIGNALLED = """
import signal, sys, time
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append("checkpoint"))
def leave(*_):
    print("saved", seen, flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_signals_reach_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SIGNALLED)
    process = subprocess.Popen(
        [sys.executable, "-m", "numdrift", "run", "train.py", "--modes", "cpu", "--pass-through"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (7, b"saved ['checkpoint']\n")
    assert json.loads((tmp_path / "runs/train/cpu/run.json").read_text())["status"] == "killed"


@pytest.mark.slow
def test_what_is_not_understood_is_told_and_an_error_when_strict(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("import torch\nprint('no training')\n")
    loose = numdrift("run", "nothing.py", "--modes", "cpu", "--json", "loose.json")
    strict = numdrift("run", "nothing.py", "--modes", "cpu", "--strict", "--name", "strict")
    assert (loose.returncode, strict.returncode) == (3, 3)
    assert "call numdrift.step()" in loose.stderr
    assert strict.stderr.count("call numdrift.step()") == strict.stderr.count("(--strict)") == 1
    assert "stderr.log" not in strict.stderr  # it is empty
    (found,) = json.loads((tmp_path / "loose.json").read_text())["runs"]
    assert (found["status"], len(found["adopted"]["doubts"])) == ("complete", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-m", "pkg.trian"), "did you mean 'train'"),
        (("-m", "pkg"), "is a package without __main__.py"),
        ((), "no script is given"),
        (("-m", "torch._C"), "has no Python source"),
    ],
    ids=["misspelt", "package", "nothing", "extension"],
)
def test_what_cannot_be_run_is_said_in_one_line(
    numdrift: Numdrift, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    package(tmp_path)
    (tmp_path / "pkg/train.py").touch()
    done = numdrift("run", *arguments, "--modes", "cpu")
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


COLLECTED = """\
import gc
import weakref

import torch

class Cycle:
    pass

cycle = Cycle()
cycle.itself, alive = cycle, weakref.ref(cycle)
del cycle
kept = [[] for _ in range(200_000)]
print(gc.isenabled(), gc.get_freeze_count() > 50_000, alive())
"""


@pytest.mark.slow
def test_garbage_of_the_script_is_collected_and_what_torch_imports_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "cycle.py").write_text(COLLECTED)
    command = [sys.executable, "-m", "numdrift", "run", "cycle.py", "--modes", "cpu", "--pass-through"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"True True None\n"), done.stderr

"""`numdrift watch`: the training is as under python, and what happened in it is recorded."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from numdrift import compare, load_run
from numdrift.harness.runs.loss_spikes import spikes_of

pytestmark = [pytest.mark.own_processes, pytest.mark.slow]

TRAIN = """
import argparse, os, random, signal, sys
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--what", default="")
parser.add_argument("--compile", action="store_true")
options = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
train = torch.compile(model) if options.compile else model
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
print(sys.argv[1:], __file__, __name__, os.environ.get("DEVICE"), os.environ.get("PYTHONHASHSEED"), sys.stdin.read())
for step in range(options.steps):
    x = torch.randn(32, 8)
    y = x.sum(1, keepdim=True) * (100 if options.what == "spike" and step == 25 else 1)
    if options.what == "nan" and step == 25:
        x[0, 0] = float("nan")
    loss = (train(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
torch.save(model.state_dict(), "model.pt")
print([value.numpy().tobytes().hex() for value in model.state_dict().values()], torch.rand(1).item().hex())
if options.what == "signal":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(5 if options.what == "code" else 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def started(folder: Path, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, input=b"words", capture_output=True, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip


def watched(folder: Path, *words: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return started(folder, "-m", "numdrift", "watch", *words, **variables)


@pytest.mark.parametrize("further", [[], pytest.param(["--compile"], marks=pytest.mark.exhaustive)])
def test_a_watched_training_has_the_bits_of_an_unwatched_one(further: list[str], folder: Path) -> None:
    bare = started(folder, "train.py", *further)
    (folder / "model.pt").unlink()
    done = watched(folder, "--overhead", "100%", sys.executable, "train.py", *further)
    assert (done.returncode, done.stdout, done.stderr) == (0, bare.stdout, bare.stderr), done.stderr
    assert (folder / "model.pt").exists()  # in the script's own folder
    run = load_run(folder / "runs/train/watch")
    printed = [float.fromhex(line) for line in bare.stdout.decode().splitlines()[1:-1]]
    assert run.journal.losses == printed
    # a sample of the tensors, one of each module
    (_, digests), *_ = run.journal.digests()
    assert list(digests.values) == ["0.bias", "3.bias"]
    assert run.manifest.spec == "watch=cpu" and run.manifest.status == "complete"
    assert spikes_of(run.journal) == []


def test_a_spike_is_told_at_the_end_and_its_run_serves_compare(folder: Path) -> None:
    done = watched(folder, "--name", "prod", "--json", "found.json", "train.py", "--", "--what", "spike")
    assert done.returncode == 0
    told = done.stderr.decode().splitlines()
    assert told[0].startswith("numdrift: the loss spiked at step 25: ") and "steps 17 to 33 are recorded" in told[0]
    assert told[1:] == ["numdrift: recorded in runs/prod/watch"]
    found = json.loads((folder / "found.json").read_text())
    assert [(spike["step"], spike["reason"]) for spike in found["spikes"]] == [(25, "spike")]
    # the same command again, as a launcher starts it after a failure, records beside it
    assert watched(folder, "--name", "prod", "train.py", "--what", "spike").returncode == 0
    compared = compare(folder / "runs/prod/watch", folder / "runs/prod/watch_2")
    assert compared.distances.identical and compared.distances.losses.common_steps == 40
    assert any("because the loss spiked at step 25" in note for note in compared.distances.notes)


def test_a_nan_is_told_with_its_tensor_and_the_command_that_finds_the_op(folder: Path) -> None:
    done = watched(folder, "train.py", "--what", "nan")
    told = done.stderr.decode()
    assert "the loss is nan at step 25; first seen in the gradient of 3.bias at step 25" in told
    assert "numdrift run train.py --modes cpu --record ops --steps 25 -- --what nan" in told
    assert load_run(folder / "runs/train/watch").manifest.status == "nonfinite"
    assert watched(folder, "--quiet", "train.py", "--what", "nan").stderr == b""


@pytest.mark.parametrize(("what", "code"), [("code", 5), ("signal", 128 + signal.SIGKILL)])
def test_the_end_of_the_script_is_the_end_of_the_command(what: str, code: int, folder: Path) -> None:
    assert watched(folder, "train.py", "--what", what).returncode == code
    run = load_run(folder / "runs/train/watch")
    assert len(run.journal.steps) == 40 and run.manifest.status in ("crashed", "killed")


def test_trainings_of_a_sweep_that_start_at_once_are_all_recorded(folder: Path) -> None:
    command = [sys.executable, "-m", "numdrift", "watch", "--name", "sweep", "train.py", "--steps", "3"]
    processes = [subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    runs = [load_run(folder / "runs/sweep" / name) for name in ("watch", "watch_2", "watch_3")]
    assert [len(run.journal.steps) for run in runs] == [3, 3, 3]


def test_a_process_that_does_not_train_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('nothing')\n")
    done = watched(tmp_path, "train.py")
    assert (done.returncode, done.stdout) == (0, b"nothing\n")
    assert b"no step was recorded" in done.stderr and b"let torchrun start them" in done.stderr


SIGNALLED = """
import signal, sys, time
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append("checkpoint"))
def leave(number, _):
    print("saved", seen, number, flush=True)
    sys.exit(7)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, leave)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_script_once(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SIGNALLED)
    process = subprocess.Popen(
        [sys.executable, "-m", "numdrift", "watch", "train.py"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (7, f"saved ['checkpoint'] {number.value}\n".encode())


RANKS = """
import os, sys
import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
watched = any(name.startswith("numdrift") for name in sys.modules)
open(f"rank{torch.distributed.get_rank()}.txt", "w").write(f"{watched} {loss.item().hex()}")
torch.distributed.destroy_process_group()
"""


def test_one_process_of_many_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    bare = started(tmp_path, *torchrun, "train.py")
    assert bare.returncode == 0, bare.stderr.decode()
    losses = [(tmp_path / f"rank{rank}.txt").read_text().split()[1] for rank in range(2)]
    done = started(tmp_path, *torchrun, "-m", "numdrift", "watch", "--rank", "1", "--name", "ddp", "train.py")
    assert done.returncode == 0, done.stderr.decode()
    found = [(tmp_path / f"rank{rank}.txt").read_text().split() for rank in range(2)]
    assert found == [["False", losses[0]], ["True", losses[1]]]
    assert [path.name for path in (tmp_path / "runs/ddp").iterdir() if path.is_dir()] == ["watch"]
    run = load_run(tmp_path / "runs/ddp/watch")
    assert run.journal.losses[-1].hex() == losses[1]
    assert any("rank 1 of 2, started by torchrun" in notice for notice in run.manifest.notices)


TYPED = """
import os, signal, time
count = 0
def interrupted(number, _):
    global count
    count += 1
    print("interrupted", count, flush=True)
signal.signal(signal.SIGINT, interrupted)
print("ready", os.isatty(0), os.isatty(1), os.getpgid(0) == os.tcgetpgrp(0), flush=True)
while count < 2:
    time.sleep(0.05)
print("read", input(), flush=True)
"""


OF_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_the_script_has_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TYPED)
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", OF_A_TERMINAL, "-m", "numdrift", "watch", "--quiet", "train.py"],
        cwd=tmp_path, stdin=its, stdout=its, stderr=its, start_new_session=True,
    )  # fmt: skip
    os.close(its)
    seen = ""
    # Ctrl-C reaches the whole group, so the command itself must not pass it on once more
    for awaited, typed in (("ready True True True", "\x03"), ("interrupted 1", "\x03"), ("interrupted 2", "words\n")):
        while awaited not in seen:
            seen += os.read(ours, 1024).decode()
        os.write(ours, typed.encode())
    while "read words" not in seen:
        seen += os.read(ours, 1024).decode()
    assert process.wait(60) == 0 and "interrupted 3" not in seen
    os.close(ours)

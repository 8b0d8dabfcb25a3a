"""However a run ends: what it recorded stays, the other modes go on, and the ending is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from numdrift import load_run

from ..conftest import Numdrift

ENDINGS = {
    "raise": ("crashed", "ValueError: the step went wrong"),
    "exit": ("crashed", "sys.exit(3)"),
    "kill": ("killed", "SIGKILL"),
    "memory": ("out-of-memory", "can't allocate memory"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["raise", "exit", *(pytest.param(how, marks=pytest.mark.own_processes) for how in ("kill", "memory"))]
)
def test_a_run_that_ends_at_step_4_keeps_steps_0_to_3(how: str, numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    status, words = ENDINGS[how]
    done = numdrift("run", tiny, "--modes", "cpu,lazy", "--jobs", "2", "--", "--at", "4", "--then", how)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    for mode in ("cpu", "lazy"):
        run = load_run(tmp_path / "runs/tiny" / mode)
        assert run.manifest.status == status
        assert words in run.manifest.message
        assert f"mode {mode} {status}" in done.stderr
        assert [step.step for step in run.journal.steps] == [0, 1, 2, 3]
        assert run.journal.value_steps == [0, 1, 2, 3]
        assert len(list(run.journal.digests())) == 4


def test_the_other_mode_goes_on(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    script = tmp_path / "half.py"
    script.write_text(f"import os, sys, runpy\nif os.environ['DEVICE'] == 'cpu': sys.exit(3)\n{_run(tiny)}")
    done = numdrift("run", script, "--modes", "cpu,lazy")
    assert done.returncode == 3
    assert load_run(tmp_path / "runs/half/lazy").manifest.status == "complete"
    assert (tmp_path / "runs/half/verify_lazy.pkl").exists()
    assert load_run(tmp_path / "runs/half/cpu").manifest.status == "crashed"


def _run(script: Path) -> str:
    return f"runpy.run_path({str(script)!r}, run_name='__main__')\n"


def test_a_loss_that_is_not_finite(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    done = numdrift("run", tiny, "--modes", "cpu", "--json", "-", "--", "--at", "4", "--then", "nan")
    assert done.returncode == 3
    run = load_run(tmp_path / "runs/tiny/cpu")
    assert run.manifest.status == "nonfinite"
    assert "step 4" in run.manifest.message
    assert len(run.journal.steps) == 10
    assert json.loads(done.stdout)["runs"][0]["status"] == "nonfinite"


@pytest.mark.slow
@pytest.mark.own_processes
def test_a_run_that_hangs_is_ended_with_all_that_it_started(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    # A busy machine may need more than the first seconds to come as far as the child, and a quiet one should not wait.
    for seconds in ("8", "20", "60", "180"):
        options = ("--modes", "cpu", "--timeout", seconds, "--name", f"of{seconds}", "--in-place")
        done = numdrift("run", tiny, *options, "--", "--at", "4", "--then", "child")
        assert done.returncode == 3
        run = load_run(tmp_path / f"runs/of{seconds}/cpu")
        assert run.manifest.status == "timeout"
        if (tmp_path / "child.pid").exists():
            break
    assert len(run.journal.steps) == 4
    child = (tmp_path / "child.pid").read_text()
    assert _state(child) in ("", "Z")


def _state(process: str) -> str:
    """The letter of a process' state: "" where it is gone, Z where it has ended and nobody has asked about it yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][:1]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _alive(mark: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in path.read_text():
                return True
        except OSError:
            continue
    return False


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_interrupting_numdrift_keeps_what_was_recorded(
    how: signal.Signals, code: int, tiny: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "numdrift", "run", str(tiny), "--modes", "cpu,lazy"]
    running = subprocess.Popen(
        [*command, "--", "--at", "4", "--then", "hang"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    events = tmp_path / "runs/tiny/cpu/journal/events.jsonl"
    _wait_for(lambda: events.exists() and '"step":3' in events.read_text())
    os.kill(running.pid, how)
    _, said = running.communicate(timeout=30)
    assert running.returncode == code
    assert "Traceback" not in said
    run = load_run(tmp_path / "runs/tiny/cpu")
    assert run.manifest.status == "killed"
    assert [step.step for step in run.journal.steps] == [0, 1, 2, 3]
    _wait_for(lambda: not _alive(str(tmp_path / "runs")) and not _alive(str(run.path / "config.json")))
    if how is signal.SIGINT:
        assert not (tmp_path / "runs/tiny/lazy").exists()


def _wait_for(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize("level", ["params", "ops"])
def test_a_full_disk_ends_the_recording_and_not_the_training(
    level: str, numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    script = tmp_path / "full.py"
    script.write_text(tiny.read_text().replace('print(f"peak', "os._exit(7)  # "))
    done = numdrift("run", script, "--modes", "cpu", "--record", level, "--", "--at", "4", "--then", "full")
    run = load_run(tmp_path / "runs/full/cpu")
    assert run.manifest.exit_code == 7, "the training went on to its last line"
    assert [step.step for step in run.journal.steps] == [0, 1, 2, 3]
    assert "exit code 7" in done.stderr
    assert "recording stops here" in run.path.joinpath("stderr.log").read_text() + done.stderr


@pytest.mark.parametrize("policy", ["phase", "step"])
def test_a_full_disk_leaves_the_graphs_of_lazy_mode_as_they_were(
    policy: str, numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    # given a training that exits with the number of its mark_steps, whole and with a disk that fills up at step 4
    script = tmp_path / "graphs.py"
    source = tiny.read_text().replace('print(f"peak', "os._exit(metrics.counter_value('MarkStep'))  # ")
    script.write_text(source.replace("import torch\n", "import torch\nfrom torch._lazy import metrics\n"))
    mode = f"lazy,mark_step={policy}"
    for name, arguments in (("whole", []), ("full", ["--at", "4", "--then", "full"])):
        numdrift("run", script, "--mode", mode, "--name", name, "--", *arguments)
    # then the training executed as many graphs, and the recording ended where the disk was full
    whole, full = (load_run(tmp_path / "runs" / name / "lazy") for name in ("whole", "full"))
    assert whole.manifest.exit_code == full.manifest.exit_code != 0
    assert (len(whole.journal.steps), len(full.journal.steps)) == (10, 4)


def test_a_script_that_trains_nothing_is_said_to(numdrift: Numdrift, tmp_path: Path) -> None:
    script = tmp_path / "idle.py"
    script.write_text("print('nothing to do')\n")
    done = numdrift("run", script, "--modes", "cpu")
    assert done.returncode == 3
    assert "no training was seen" in done.stderr and "numdrift.step()" in done.stderr


def test_a_training_without_a_model_that_ignores_its_device_is_refused(numdrift: Numdrift, tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import torch\n"
        "weight = torch.ones(2, requires_grad=True)\n"
        "for step in range(2):\n"
        "    (weight * 2).sum().backward()\n"
        "    with torch.no_grad():\n"
        "        weight -= 0.1 * weight.grad\n"
    )
    done = numdrift("run", script, "--modes", "lazy,cpu")
    assert done.returncode == 3
    assert 'os.environ["DEVICE"]' in done.stderr
    assert load_run(tmp_path / "runs/stubborn/cpu").manifest.status == "complete"


def test_a_mode_that_this_machine_lacks_is_named(numdrift: Numdrift, tiny: Path) -> None:
    done = numdrift("run", tiny, "--modes", "mps")
    assert done.returncode == 3
    assert "device 'mps' is not available" in done.stderr


def test_an_unknown_backend_is_wrong_usage(numdrift: Numdrift, tiny: Path) -> None:
    done = numdrift("run", tiny, "--mode", "compile,backend=inductr")
    assert done.returncode == 2
    assert "did you mean 'inductor'" in done.stderr

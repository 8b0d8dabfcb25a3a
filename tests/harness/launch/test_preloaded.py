"""A training that is forked off a preloaded process is what a started one is, and where it could not be, it is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift import load_run
from numdrift.harness.launch.guest_process import Launch, Processes, StartedProcesses, guest_of, start
from numdrift.harness.launch.preloaded import SWITCH, ForkedProcess, PreloadedProcesses
from numdrift.harness.launch.supervise import supervise
from numdrift.harness.recorder.preloaded_process import has_device
from numdrift.harness.records import frames
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig

from ...conftest import TINY
from ...processes.forked import numdrift_in
from .test_supervise import Reported, alive, pids_in, wait_until

FACTS = """
import atexit, gc, json, os, random, signal, sys, threading
import torch
made = object()
atexit.register(print, "at the end")
print(json.dumps({
    "pid": os.getpid(), "session": os.getsid(0), "group": os.getpgid(0), "address": id(made),
    "same": {
        "argv": sys.argv, "path": sys.path, "folder": os.getcwd(), "environment": dict(os.environ),
        "handlers": [str(signal.getsignal(one)) for one in signal.valid_signals()],
        "open": sorted(os.listdir("/proc/self/fd")), "input": os.readlink("/proc/self/fd/0"), "collects": gc.isenabled(),
        "numdrift": sorted(name for name in sys.modules if name.startswith("numdrift")),
        "streams": [[one.name, one.mode, one.write_through] for one in (sys.stdout, sys.stderr)],
        "drawn": [random.random(), torch.rand(1).item()], "threads": torch.get_num_threads(),
    },
}))
threading.Timer(0.1, print, ["of a thread"]).start()
"""

NOISY = """
import sys
if "torch" not in sys.modules:
    print("said when it was loaded", file=sys.stderr)
"""

WITH_A_THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"


@pytest.fixture
def little_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preloaded process imports one small module, for tests in which it does not matter which."""
    monkeypatch.setattr("numdrift.harness.launch.guest_process.imported_by", lambda spec, *, trains: ("colorsys",))


@pytest.fixture(scope="module")
def preloaded() -> Iterator[PreloadedProcesses]:
    """All trainings of this file that have one environment are forked off one process."""
    with PreloadedProcesses(lasting=True) as processes:
        yield processes


def launch_of(folder: Path, script: str, mode: str = "cpu", timeout: float | None = 120.0) -> Launch:
    """A recorded training of a script, ready to be started."""
    # the name of the test and its phase: no two trainings would have one environment
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    spec, path = parse_mode(mode), folder / "script.py"
    (folder / "journal").mkdir(parents=True)
    path.write_text(script)
    config = RunConfig(str(path), spec, str(folder / "journal"))
    (folder / "config.json").write_text(json.dumps(config.to_json()))
    events = folder / "journal" / frames.EVENTS
    return Launch(spec.name, spec, folder / "config.json", events, folder / "out", folder / "err", timeout)


def facts_of(folder: Path, processes: Processes) -> dict[str, Any]:
    launch = launch_of(folder, FACTS)
    assert start(launch, processes).wait(120) == 0, launch.stderr.read_text()
    first, *rest = launch.stdout.read_text().splitlines()
    assert rest == ["of a thread", "at the end"]
    facts: dict[str, Any] = json.loads(first.replace(str(folder), "FOLDER"))
    return facts


@pytest.mark.slow
def test_a_fork_is_a_process_as_any_other(preloaded: PreloadedProcesses, tmp_path: Path) -> None:
    forked, *again = (facts_of(tmp_path / str(number), preloaded) for number in range(3))
    started = facts_of(tmp_path / "started", StartedProcesses())
    assert forked["session"] == forked["group"] == forked["pid"]
    for what, value in started["same"].items():
        assert forked["same"][what] == value, what
    # as two started processes have, else a training whose bits hang on addresses would repeat itself; by whole pages
    assert len({one["address"] >> 14 for one in (forked, *again)}) > 1
    assert len({one["address"] % (1 << 12) for one in (forked, *again)}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("raise SystemExit(7)", 7),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    ],
)
def test_a_fork_ends_as_the_script_does(how: str, code: int, preloaded: PreloadedProcesses, tmp_path: Path) -> None:
    launch = launch_of(tmp_path, f"print('begun', flush=True)\n{how}\n")
    process = start(launch, preloaded)
    assert isinstance(process, ForkedProcess)
    assert process.wait(120) == process.poll() == process.returncode == code
    assert launch.stdout.read_text() == "begun\n"


@pytest.mark.slow
def test_a_fork_that_hangs_is_ended_with_all_that_it_started(preloaded: PreloadedProcesses, tmp_path: Path) -> None:
    script = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
time.sleep(600)
"""
    start(launch_of(tmp_path / "first", ""), preloaded).wait(120)  # all is loaded when the timeout begins
    reported = Reported()
    supervise([launch_of(tmp_path / "hangs", script, timeout=10.0)], reported, reported.finished, 1, preloaded)
    assert reported.ends["cpu"].why == "timeout"
    assert reported.ends["cpu"].returncode == -signal.SIGTERM
    pids = pids_in(tmp_path / "pids")
    assert len(pids) == 2
    assert wait_until(lambda: not any(map(alive, pids)))


@pytest.mark.slow
def test_what_may_be_read_at_an_import_has_a_process_of_its_own(preloaded: PreloadedProcesses, tmp_path: Path) -> None:
    script = "import os, torch; print(torch.get_num_threads(), os.environ.get('DEVICE'), os.environ.get('RANK'))\n"
    one = launch_of(tmp_path / "one", script, "cpu,threads=1")
    late = replace(launch_of(tmp_path / "late", script, "late=cpu,threads=1"), variables={"RANK": "3"})
    forks = [start(launch, preloaded) for launch in (one, late)]
    assert [fork.wait(120) for fork in forks] == [0, 0]
    assert one.stdout.read_text() == "1 cpu None\n"
    assert late.stdout.read_text() == "1 cpu 3\n"


def started_after(folder: Path, site: str) -> tuple[Any, Launch]:
    """How a training is started where Python runs this code when it begins."""
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(site)
    path = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    launch = launch_of(folder / "run", "print('ran')\n", f"cpu,env.PYTHONPATH={path}")
    with PreloadedProcesses(lasting=True) as processes:
        process = start(launch, processes)
        assert process.wait(120) == 0
    assert launch.stdout.read_text() == "ran\n"
    return process, launch


@pytest.mark.slow
@pytest.mark.usefixtures("little_preloaded")
def test_a_process_with_a_thread_is_not_forked(tmp_path: Path) -> None:
    process, _ = started_after(tmp_path, WITH_A_THREAD)
    assert isinstance(process, subprocess.Popen)


@pytest.mark.slow
def test_what_is_said_when_something_is_loaded_is_said_by_each_fork(tmp_path: Path) -> None:
    process, launch = started_after(tmp_path, NOISY)
    assert isinstance(process, ForkedProcess)
    assert launch.stderr.read_text() == "said when it was loaded\n"


def test_a_driver_that_is_in_use_is_noticed() -> None:
    assert not has_device()
    device = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    try:
        assert has_device()
    finally:
        os.close(device)


def test_where_nothing_is_shared_nothing_is_preloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr("numdrift.harness.launch.preloaded.PreloadedProcess", made.append)
    specs = ["cpu", "one=cpu,threads=1", "hpu", "other=hpu", "npu"]
    guests = [guest_of(launch_of(tmp_path / str(place), "", spec)) for place, spec in enumerate(specs)]
    with PreloadedProcesses() as processes:
        processes.expect(guests)
        assert not made
        monkeypatch.setenv(SWITCH, "0")
        processes.expect([guests[0], guests[0]])
        assert not made
        monkeypatch.delenv(SWITCH)
        processes.expect([guests[0], guests[0]])
        assert len(made) == 1
        processes._processes.clear()


def test_what_opens_no_device_when_torch_is_imported_is_preloaded(tmp_path: Path) -> None:
    imports = {
        text: guest_of(launch_of(tmp_path / str(place), "", text)).imports
        for place, text in enumerate(("cuda", "compile,device=cuda", "hpu", "compile,device=hpu,backend=aot_eager"))
    }
    assert imports["cuda"] and set(imports["cuda"]) < set(imports["compile,device=cuda"])
    assert not imports["hpu"] and not imports["compile,device=hpu,backend=aot_eager"]


@pytest.mark.slow
@pytest.mark.usefixtures("little_preloaded")
def test_a_preloaded_process_that_dies_takes_its_forks_along_and_the_next_is_started(tmp_path: Path) -> None:
    with PreloadedProcesses(lasting=True) as processes:
        fork = start(
            launch_of(tmp_path / "first", "import time; print('begun', flush=True); time.sleep(600)"), processes
        )
        assert wait_until(lambda: (tmp_path / "first" / "out").read_text() == "begun\n", 60)
        parent = int(Path(f"/proc/{fork.pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert fork.wait(20) == -signal.SIGKILL
        assert wait_until(lambda: not alive(fork.pid))
        second = start(launch_of(tmp_path / "second", "print('ran')"), processes)
        assert isinstance(second, subprocess.Popen)
        assert second.wait(120) == 0


@pytest.mark.slow
def test_no_orphan_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(
        "import os, time\nopen(os.environ['DEVICE'], 'w').write(f'{os.getpid()} {os.getppid()}')\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-m", "numdrift", "run", str(script), "--modes", "cpu,lazy", "--jobs", "2", "--in-place"]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert wait_until(lambda: len(pids_in(tmp_path / "cpu") + pids_in(tmp_path / "lazy")) == 4, 120)
    time.sleep(0.1)
    pids = set(pids_in(tmp_path / "cpu") + pids_in(tmp_path / "lazy"))
    assert len(pids) == 3, "two trainings of one preloaded process"
    running.kill()
    running.wait()
    assert wait_until(lambda: not any(map(alive, pids)))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("stated", ["", ",threads=1"])
def test_a_fork_has_the_bits_of_a_started_training(stated: str, tmp_path: Path) -> None:
    # given the same modes, forked off a preloaded process and not
    words = [word for base in ("cpu", "compile", "lazy") for word in ("--mode", base + stated)]
    for name, switch in (("forked", "1"), ("started", "0")):
        done = numdrift_in(tmp_path, "run", TINY, *words, "--record", "ops", "--name", name, NUMDRIFT_PRELOAD=switch)
        assert done.returncode == 0, done.stderr
    # then every digest, value and printed character is the same, and so is what is known of the environment
    for mode in ("cpu", "compile", "lazy"):
        one, other = (load_run(tmp_path / "runs" / name / mode) for name in ("forked", "started"))
        assert one.journal.losses == other.journal.losses
        assert list(one.journal.digests()) == list(other.journal.digests())
        for name, value in one.journal.values(0).items():
            assert value.tobytes() == other.journal.values(0)[name].tobytes(), name
        assert (one.path / "stderr.log").read_bytes() == (other.path / "stderr.log").read_bytes()
        assert one.manifest.environment == other.manifest.environment

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.launch.guest_process import Launch, environment, interpreter, start
from numdrift.harness.launch.journal_tail import SILENT_SECONDS, Compilations, JournalProgress, Tail
from numdrift.harness.launch.preloaded import circumstances
from numdrift.harness.launch.running_process import ProcessEnd
from numdrift.harness.launch.supervise import EndingSignal, signals_for, supervise
from numdrift.harness.records import frames
from numdrift.harness.records.modes.mode_spec import parse_mode

SLEEPER = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"
WITH_STUBBORN_CHILD = """
import os, signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
with open(os.environ["PIDS"], "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
time.sleep(60)
"""
MEETING = """
import os, pathlib, sys, time
here = pathlib.Path(os.environ["HERE"])
here.joinpath(os.environ["ME"]).touch()
until = time.monotonic() + 20
while not here.joinpath(os.environ["OTHER"]).exists():
    if time.monotonic() > until:
        sys.exit(7)
    time.sleep(0.01)
"""


class Reported:
    """A reporter that lists what it is told, and keeps each end."""

    def __init__(self, on_start: Callable[[], None] = lambda: None) -> None:
        self.events: list[str] = []
        self.ends: dict[str, ProcessEnd] = {}
        self.on_start = on_start

    def started(self, name: str) -> None:
        self.events.append(f"started {name}")
        self.on_start()

    def progressed(self, name: str, progress: JournalProgress) -> None:
        self.events.append(f"progressed {name}")

    def ended(self, name: str, end: ProcessEnd) -> None:
        self.events.append(f"ended {name}")

    def finished(self, launch: Launch, end: ProcessEnd) -> None:
        self.ends[launch.name] = end


def launch_of(folder: Path, script: str, mode: str = "cpu", timeout: float | None = 30.0) -> Launch:
    """A launch whose interpreter is the script itself, so that neither numdrift nor torch is loaded in it."""
    here = folder / parse_mode(mode).name
    here.mkdir()
    program = here / "program"
    program.write_text(f"#!{sys.executable} -I\n{script}")
    program.chmod(0o755)
    spec = parse_mode(f"{mode},python={program}")
    return Launch(spec.name, spec, here / "config.json", here / frames.EVENTS, here / "out", here / "err", timeout)


def alive(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be collected by its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(happened: Callable[[], bool], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def pids_in(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def test_a_timeout_ends_the_process_and_all_that_it_started(tmp_path: Path) -> None:
    # given a script whose child does not listen to SIGTERM, and a timeout that begins when both are there
    pids, reported = tmp_path / "pids", Reported()
    launch = launch_of(tmp_path, WITH_STUBBORN_CHILD, f"cpu,env.PIDS={pids}", timeout=1.5)
    # when
    completed = supervise([launch], reported, reported.finished)
    # then
    assert completed
    assert reported.ends["cpu"].why == "timeout" and reported.ends["cpu"].seconds >= 1.5
    assert reported.ends["cpu"].returncode == -signal.SIGTERM
    assert len(pids_in(pids)) == 2, launch.stderr.read_text()
    assert wait_until(lambda: not any(alive(pid) for pid in pids_in(pids)), 5.0)


def test_two_jobs_overlap(tmp_path: Path) -> None:
    # given two scripts, each of which waits for the other to be under way
    reported = Reported()
    launches = [
        launch_of(tmp_path, MEETING, f"{me}=cpu,env.HERE={tmp_path},env.ME=at_{me},env.OTHER=at_{other}")
        for me, other in [("a", "b"), ("b", "a")]
    ]
    # when
    supervise(launches, reported, reported.finished, jobs=2)
    # then
    assert {name: end.returncode for name, end in reported.ends.items()} == {"a": 0, "b": 0}
    assert reported.events[:2] == ["started a", "started b"]


def test_one_job_at_a_time_runs_in_order(tmp_path: Path) -> None:
    reported = Reported()
    launches = [launch_of(tmp_path, "", mode) for mode in ("b=cpu", "a=cpu")]
    supervise(launches, reported, reported.finished)
    assert reported.events == ["started b", "ended b", "started a", "ended a"]


def test_a_kill_from_elsewhere_is_seen(tmp_path: Path) -> None:
    # given
    script = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    reported = Reported()
    # when
    supervise([launch_of(tmp_path, script)], reported, reported.finished)
    # then
    assert (reported.ends["cpu"].returncode, reported.ends["cpu"].why) == (-signal.SIGKILL, "exited")


@pytest.mark.parametrize(("script", "code"), [("", 0), ("import sys\nsys.exit(5)\n", 5), ("1 / 0\n", 1)])
def test_an_exit_code_is_passed_on(tmp_path: Path, script: str, code: int) -> None:
    reported, launch = Reported(), launch_of(tmp_path, script)
    assert supervise([launch], reported, reported.finished)
    assert (reported.ends["cpu"].returncode, reported.ends["cpu"].why) == (code, "exited")
    assert ("ZeroDivisionError" in launch.stderr.read_text()) == (code == 1)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_stops_what_runs_and_starts_nothing_more(tmp_path: Path) -> None:
    # given a terminal's interrupt once the first script is under way
    launches = [launch_of(tmp_path, SLEEPER, mode) for mode in ("a=cpu", "b=cpu")]

    def interrupt() -> None:
        wait_until(lambda: launches[0].stdout.read_text() == "ready\n")
        os.kill(os.getpid(), signal.SIGINT)

    reported = Reported(on_start=threading.Thread(target=interrupt).start)
    # when
    completed = supervise(launches, reported, reported.finished)
    # then
    assert not completed
    assert reported.ends.keys() == {"a"} and reported.ends["a"].why == "interrupted"
    assert reported.ends["a"].returncode == -signal.SIGINT
    assert not launches[1].stdout.exists()


def test_a_process_reads_nothing_from_the_terminal(tmp_path: Path) -> None:
    launch = launch_of(tmp_path, "import sys\nprint(sys.stdin.read() == '')\n")
    assert start(launch).wait(30) == 0
    assert launch.stdout.read_text() == "True\n"


def test_environment_of_a_mode() -> None:
    # given
    inherited = {"DEVICE": "cuda", "HOME": "/root", "FAULT": "0", "OMP_NUM_THREADS": "9"}
    # when
    plain = environment(parse_mode("cpu"), inherited)
    stated = environment(parse_mode("cpu,threads=3,env.FAULT=1,env.DEVICE=x,env.PYTHONHASHSEED=5"), inherited)
    # then
    assert plain == {
        "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "HOME": "/root", "FAULT": "0", "OMP_NUM_THREADS": "9",
        "OMP_WAIT_POLICY": "passive",
    }  # fmt: skip
    assert (stated["FAULT"], stated["DEVICE"], stated["PYTHONHASHSEED"]) == ("1", "x", "5")
    assert stated["OMP_NUM_THREADS"] == stated["MKL_NUM_THREADS"] == "3"


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_how_threads_wait_is_the_users_to_say(name: str) -> None:
    found = environment(parse_mode("cpu"), {name: "7"})
    assert found == {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", name: "7"}
    assert environment(parse_mode(f"cpu,env.{name}=active"), {})[name] == "active"


def test_cublas_and_nccl_sum_in_one_order_where_the_mode_is_deterministic() -> None:
    name = "CUBLAS_WORKSPACE_CONFIG"
    for mode in ("cuda,deterministic=on", "compile,device=cuda,deterministic=warn", "cuda,deterministic=strict"):
        found = environment(parse_mode(mode), {})
        assert (found[name], found["NCCL_ALGO"]) == (":4096:8", "Ring")
        assert environment(parse_mode(mode), {name: ":16:8"})[name] == ":16:8"
    assert environment(parse_mode(f"cuda,deterministic=on,env.{name}=x"), {})[name] == "x"
    for mode in ("cuda", "cuda,deterministic=off", "cpu,deterministic=on"):
        assert name not in environment(parse_mode(mode), {})


def test_an_interpreter_that_is_not_there_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"mode 'x': python=/no/python is not a program on this machine"):
        interpreter(parse_mode("x=cpu,python=/no/python"))


def test_a_tail_reads_complete_lines_alone(tmp_path: Path) -> None:
    # given
    events = tmp_path / "events.jsonl"
    tail = Tail(events)
    first = b'{"event":"start"}\n{"event":"step","step":0,"losses":[0.5],"seconds":0.1}\n'
    second = b'{"event":"step","step":1,"losses":["nan"],"seconds":0.2}\n'
    third = b'{"event":"step","step":2,"losses":[],"seconds":0.3}\n'
    # then it says whether a step has ended since it last looked
    assert not tail.advance()
    events.write_bytes(first + second[:20])
    assert tail.advance() and tail.progress == JournalProgress(1, 0.5, 0.1)
    assert not tail.advance()
    events.write_bytes(first + second)
    assert tail.advance() and tail.progress.steps == 2 and str(tail.progress.loss) == "nan"
    events.write_bytes(first + second + third)
    assert tail.advance() and tail.progress == JournalProgress(3, None, 0.3)


def test_a_tail_says_what_is_being_compiled_until_it_is(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    tail = Tail(events)
    events.write_text(
        '{"event":"compiling","backward":false,"line":"a/train.py:3"}\n{"event":"compiled","seconds":1}\n'
    )
    assert not tail.advance() and tail.progress.compilations == Compilations(1)
    with events.open("a") as file:
        file.write('{"event":"compiling","backward":true,"line":"a/train.py:4"}\n')
    for _ in range(2):  # as long as it goes on, at every look
        assert tail.advance() and tail.progress.compilations.under_way
    found = tail.progress.compilations
    assert (found.graphs, found.backward, found.line) == (2, True, "a/train.py:4")
    with events.open("a") as file:
        file.write('{"event":"compiled","seconds":2}\n{"event":"step","step":0,"losses":[0.5],"seconds":0.1}\n')
    assert tail.advance() and tail.progress == JournalProgress(1, 0.5, 0.1, compilations=Compilations(2))
    # a graph that is compiled once more is told by its own number, and is no further one
    with events.open("a") as file:
        file.write('{"event":"compiling","backward":false,"line":"a/train.py:3","again":1}\n')
    assert tail.advance() and (tail.progress.compilations.graphs, tail.progress.compilations.again) == (2, 1)
    with events.open("a") as file:
        file.write('{"event":"compiled","seconds":2}\n')
    assert not tail.advance() and tail.progress.compilations == Compilations(2)


def test_a_tail_gives_a_sign_of_life_in_a_long_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a run that starts, and whose first step takes long
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    events = tmp_path / "events.jsonl"
    tail = Tail(events)
    heard = list[tuple[float, bool, float | None]]()

    def look(at: float, line: str = "") -> None:
        clock[0] = at
        with events.open("a") as file:
            file.write(line)
        heard.append((at, tail.advance(), tail.progress.silent_since))

    # when
    look(100 + SILENT_SECONDS - 1)
    look(100 + SILENT_SECONDS)
    look(140, '{"event":"compiling","backward":false,"line":"a/train.py:3"}\n')
    look(200, '{"event":"compiled","seconds":1}\n')
    look(200 + SILENT_SECONDS)
    look(240, '{"event":"step","step":0,"losses":[0.5],"seconds":0.1}\n')
    look(241)
    look(240 + SILENT_SECONDS)
    look(290, '{"event":"end","exit_code":0}\n')
    # then: since when the step is under way, compiling included
    assert heard == [
        (129, False, None),
        (130, True, 100),
        (140, True, None),
        (200, False, None),
        (230, True, 100),
        (240, True, None),
        (241, False, None),
        (270, True, 240),
        (290, False, None),
    ]


def test_what_is_ignored_stays_ignored_for_the_scripts_too() -> None:
    # given a command under nohup
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        outside = circumstances()
        # when the terminal is closed
        with signals_for(lambda number: None):
            os.kill(os.getpid(), signal.SIGHUP)
            # then it goes on, and a preloaded process serves as it did
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert circumstances() == outside
            with pytest.raises(EndingSignal):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

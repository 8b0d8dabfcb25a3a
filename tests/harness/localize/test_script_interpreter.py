"""What a script does in a fork is what it does in an interpreter of its own, however the forking interpreter began."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from numdrift.harness.launch.guest_process import Guest
from numdrift.harness.launch.preloaded import ForkedProcess, PreloadedProcesses
from numdrift.harness.localize.scripts.script_interpreter import ScriptInterpreter, Scripts


@pytest.fixture(scope="module")
def preloaded() -> Iterator[PreloadedProcesses]:
    """Preloaded processes that have imported one small module for the environments of this file."""
    with PreloadedProcesses(lasting=True) as processes:
        yield processes


def expected(processes: PreloadedProcesses, *imports: str, **variables: str) -> dict[str, str]:
    """Preload a process that has imported these modules, and return its environment."""
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # it changes from test to test
    environment = {**os.environ, **variables}
    if imports:
        processes.expect([Guest(Path(), environment, imports=imports)])
        forking(environment, processes, imports).close()
    return environment


def forking(
    environment: dict[str, str], processes: PreloadedProcesses, imports: tuple[str, ...] = ("colorsys",)
) -> ScriptInterpreter:
    guest = Guest(Path(), environment, imports=imports)
    return ScriptInterpreter(imports, environment, partial(processes.start_isolated, guest))


@pytest.fixture(scope="module", params=["started", "forked"])
def interpreter(request: pytest.FixtureRequest, preloaded: PreloadedProcesses) -> Iterator[Scripts]:
    environment = expected(preloaded, "colorsys")
    is_forked = request.param == "forked"
    running = forking(environment, preloaded) if is_forked else ScriptInterpreter(("colorsys",), environment)
    with running, Scripts(running.address) as asking:
        assert isinstance(running._process, ForkedProcess) == is_forked
        yield asking


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print('fine')", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise ValueError('no')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_it_ends_as_it_would_alone(interpreter: Scripts, tmp_path: Path, text: str, code: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    alone = subprocess.run([sys.executable, "-I", script.name], cwd=tmp_path, capture_output=True, check=False)
    assert alone.returncode == code
    assert interpreter.execute(script, 60)[0] == code


def test_it_sees_its_own_folder_and_arguments_and_nothing_of_ours(interpreter: Scripts, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "print(os.getcwd(), sys.argv, __name__, __file__, sys.stdin.read() == '', flush=True)\n"
        "print('numdrift' in sys.modules, 'forking_interpreter' in sys.modules, file=sys.stderr)\n"
    )
    _, output = interpreter.execute(script, 60)
    assert output.splitlines() == [f"{tmp_path} ['script.py'] __main__ script.py True", "False False"]


def test_it_finds_the_modules_that_an_isolated_interpreter_finds(preloaded: PreloadedProcesses, tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "of_user.py").write_text("")
    script = tmp_path / "script.py"
    script.write_text("import importlib.util, sys\nprint(sys.path)\nprint(importlib.util.find_spec('of_user'))\n")
    environment = expected(preloaded, "colorsys", PYTHONPATH=str(tmp_path / "users"))
    with forking(environment, preloaded) as running, Scripts(running.address) as asking:
        assert isinstance(running._process, ForkedProcess)
        _, output = asking.execute(script, 60)
    alone = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(sys.path)"], capture_output=True, text=True, check=True
    )
    assert output == f"{alone.stdout}None\n"


@pytest.mark.parametrize("why", ["the user's module", "more modules", "no asserts", "no such process"])
def test_it_is_started_where_a_fork_would_not_be_isolated(
    why: str, preloaded: PreloadedProcesses, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("")
    imports = {"more modules": ["colorsys", "wave"], "no such process": []}.get(why, ["colorsys"])
    variables = {"the user's module": {"PYTHONPATH": str(tmp_path)}, "no asserts": {"PYTHONOPTIMIZE": "1"}}.get(why, {})
    running = forking(expected(preloaded, *imports, FOR=why, **variables), preloaded)
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint('sitecustomize' in sys.modules, 'wave' in sys.modules)\nassert False")
    with running, Scripts(running.address) as asking:
        assert isinstance(running._process, subprocess.Popen)
        code, output = asking.execute(script, 60)
    assert (code, output.splitlines()[0]) == (1, "False False")


def test_what_one_script_leaves_is_not_there_for_the_next(interpreter: Scripts, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import json; print(hasattr(json, 'left')); json.left = 1")
    assert [interpreter.execute(script, 60) for _ in range(2)] == [(0, "False\n")] * 2


def test_one_that_does_not_end_is_killed_and_the_next_is_executed(tmp_path: Path) -> None:
    endless, short = tmp_path / "endless.py", tmp_path / "short.py"
    endless.write_text("import pathlib, os, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)")
    short.write_text("print('fine')")
    with ScriptInterpreter(()) as started, Scripts(started.address) as interpreter:
        with pytest.raises(subprocess.TimeoutExpired):
            interpreter.execute(endless, 2)
        assert interpreter.execute(short, 60) == (0, "fine\n")
    process = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{process}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_several_ask_and_each_is_answered(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('fine')")
    with ScriptInterpreter(("json",)) as started:
        for _ in range(2):
            with Scripts(started.address) as first, Scripts(started.address) as second:
                assert {one.execute(script, 60) for one in (second, first)} == {(0, "fine\n")}
    with pytest.raises(OSError, match="No such file"):
        Scripts(started.address)


STARTS = """\
import os, sys, threading, time
from pathlib import Path
from numdrift.harness.localize.scripts.script_interpreter import ScriptInterpreter, Scripts
from numdrift.harness.launch.guest_process import Guest
from numdrift.harness.launch.preloaded import PreloadedProcesses
processes, guest = PreloadedProcesses(lasting=True), Guest(Path(), os.environ, imports=("colorsys",))
if sys.argv[2] == "forked":
    processes.expect([guest])
interpreter = ScriptInterpreter(("colorsys",), os.environ, lambda *given: processes.start_isolated(guest, *given))
scripts = Scripts(interpreter.address)
threading.Thread(target=scripts.execute, args=(Path(sys.argv[1]), 600), daemon=True).start()
while not Path("pid").exists() or not Path("pid").read_text():
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["started", "forked"])
def test_who_is_killed_leaves_no_interpreter_and_no_script(how: str, tmp_path: Path) -> None:
    script, pid = tmp_path / "endless.py", tmp_path / "pid"
    script.write_text("import os, time; open('pid', 'w').write(f'{os.getppid()} {os.getpid()}'); time.sleep(600)")
    subprocess.run([sys.executable, "-c", STARTS, str(script), how], cwd=tmp_path, check=False, timeout=60)
    left = [Path(f"/proc/{number}/stat") for number in pid.read_text().split()]
    until = time.monotonic() + 20
    while any(one.exists() and one.read_text().rpartition(")")[2].split()[0] not in "ZX" for one in left):
        assert time.monotonic() < until, left
        time.sleep(0.05)

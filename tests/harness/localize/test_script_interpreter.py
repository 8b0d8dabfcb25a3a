"""What a script does in a fork is what it does in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from numdrift.harness.localize.scripts.script_interpreter import ScriptInterpreter, Scripts


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Scripts]:
    with ScriptInterpreter(["json"]) as started, Scripts(started.address) as asking:
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


def test_what_one_script_leaves_is_not_there_for_the_next(interpreter: Scripts, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import json; print(hasattr(json, 'left')); json.left = 1")
    assert [interpreter.execute(script, 60) for _ in range(2)] == [(0, "False\n")] * 2


def test_one_that_does_not_end_is_killed_and_the_next_is_executed(tmp_path: Path) -> None:
    endless, short = tmp_path / "endless.py", tmp_path / "short.py"
    endless.write_text("import pathlib, os, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)")
    short.write_text("print('fine')")
    with ScriptInterpreter([]) as started, Scripts(started.address) as interpreter:
        with pytest.raises(subprocess.TimeoutExpired):
            interpreter.execute(endless, 2)
        assert interpreter.execute(short, 60) == (0, "fine\n")
    process = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{process}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_several_ask_and_each_is_answered(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('fine')")
    with ScriptInterpreter(["json"]) as started:
        for _ in range(2):
            with Scripts(started.address) as first, Scripts(started.address) as second:
                assert {one.execute(script, 60) for one in (second, first)} == {(0, "fine\n")}
    with pytest.raises(OSError, match="No such file"):
        Scripts(started.address)


STARTS = """\
import os, sys, threading, time
from pathlib import Path
from numdrift.harness.localize.scripts.script_interpreter import ScriptInterpreter, Scripts
interpreter = ScriptInterpreter([])
scripts = Scripts(interpreter.address)
threading.Thread(target=scripts.execute, args=(Path(sys.argv[1]), 600), daemon=True).start()
while not Path("pid").exists() or not Path("pid").read_text():
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""


def test_who_is_killed_leaves_no_interpreter_and_no_script(tmp_path: Path) -> None:
    script, pid = tmp_path / "endless.py", tmp_path / "pid"
    script.write_text("import os, time; open('pid', 'w').write(f'{os.getppid()} {os.getpid()}'); time.sleep(600)")
    subprocess.run([sys.executable, "-c", STARTS, str(script)], cwd=tmp_path, check=False, timeout=60)
    left = [Path(f"/proc/{number}/stat") for number in pid.read_text().split()]
    until = time.monotonic() + 20
    while any(one.exists() and one.read_text().rpartition(")")[2].split()[0] not in "ZX" for one in left):
        assert time.monotonic() < until, left
        time.sleep(0.05)

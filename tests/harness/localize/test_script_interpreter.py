"""What a script does in a fork is what it does in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from numdrift.harness.localize.script_interpreter import ScriptInterpreter


@pytest.fixture(scope="module")
def interpreter() -> Iterator[ScriptInterpreter]:
    with ScriptInterpreter(["json"]) as started:
        yield started


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("print('fine')", 0),
        ("import sys; sys.exit(7)", 7),
        ("raise ValueError('no')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_it_ends_as_it_would_alone(interpreter: ScriptInterpreter, tmp_path: Path, text: str, code: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    alone = subprocess.run([sys.executable, "-I", script.name], cwd=tmp_path, capture_output=True, check=False)
    assert alone.returncode == code
    assert interpreter.execute(script, 60)[0] == code


def test_it_sees_its_own_folder_and_arguments_and_nothing_of_ours(
    interpreter: ScriptInterpreter, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "print(os.getcwd(), sys.argv, __name__, __file__, sys.stdin.read() == '', flush=True)\n"
        "print('numdrift' in sys.modules, 'forking_interpreter' in sys.modules, file=sys.stderr)\n"
    )
    _, output = interpreter.execute(script, 60)
    assert output.splitlines() == [f"{tmp_path} ['script.py'] __main__ script.py True", "False False"]


def test_what_one_script_leaves_is_not_there_for_the_next(interpreter: ScriptInterpreter, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import json; print(hasattr(json, 'left')); json.left = 1")
    assert [interpreter.execute(script, 60) for _ in range(2)] == [(0, "False\n")] * 2


def test_one_that_does_not_end_is_killed_and_the_next_is_executed(tmp_path: Path) -> None:
    endless, short = tmp_path / "endless.py", tmp_path / "short.py"
    endless.write_text("import pathlib, os, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)")
    short.write_text("print('fine')")
    with ScriptInterpreter([]) as interpreter:
        with pytest.raises(subprocess.TimeoutExpired):
            interpreter.execute(endless, 2)
        assert interpreter.execute(short, 60) == (0, "fine\n")
    process = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{process}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"

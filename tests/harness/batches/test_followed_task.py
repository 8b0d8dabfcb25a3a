"""A task whose output is shown while it runs: every line once, also after Ctrl-C and after the death of its driver."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from numdrift.harness.batches.followed_task import executed_task
from numdrift.harness.engines.engine import EngineSettings
from numdrift.harness.engines.engine_task import OUTPUT, EngineTask, TaskEnd, is_under_way
from numdrift.harness.errors import UsageError

from ..engines.recorded_ends import KILLED_ONCE, ONCE, executions, heeding, shell_task, until


def followed(task: EngineTask, lines: list[str]) -> TaskEnd:
    return executed_task(task, "local", EngineSettings(task.folder, retries=1), lines.append)


def lines_of(lines: list[str]) -> list[str]:
    """The lines without those that say where the task runs."""
    return [line for line in lines if " runs on " not in line]


def test_lines_are_shown_while_the_task_runs_and_output_is_kept_apart(tmp_path: Path) -> None:
    script = "echo begins >&2; until test -e go; do sleep 0.01; done; printf 'an answer\\n'; printf ends >&2; exit 1"
    task = replace(shell_task(tmp_path, "a", script), output_apart=True)
    lines: list[str] = []
    ends: list[TaskEnd] = []

    thread = threading.Thread(target=lambda: ends.append(followed(task, lines)))
    thread.start()
    until(lambda: "begins" in lines)
    assert is_under_way(task.folder) and "ends" not in lines
    (task.folder / "go").touch()
    thread.join()

    assert ends[0].exit_code == 1 and not is_under_way(task.folder)
    assert lines_of(lines) == ["begins", "ends"] and lines[0] == f"a runs on {ends[0].host}"
    assert (task.folder / OUTPUT).read_text() == "an answer\n"
    # when it is executed again, then its earlier output is neither shown nor kept
    again: list[str] = []
    assert followed(task, again).exit_code == 1
    assert lines_of(again) == ["begins", "ends"] and (task.folder / OUTPUT).read_text() == "an answer\n"


def test_another_attempt_is_announced(tmp_path: Path) -> None:
    lines: list[str] = []

    end = followed(shell_task(tmp_path, "a", f"{ONCE} echo tries; {KILLED_ONCE}"), lines)

    assert end.exit_code == 0 and executions(tmp_path, "a") == 2
    assert lines_of(lines) == ["tries", "tries"] and f"a runs on {end.host}, attempt 2" in lines


def driver(task: EngineTask) -> list[str]:
    """A process that executes a task and prints its lines."""
    program = f"""
        from pathlib import Path
        from numdrift.harness.batches.followed_task import executed_task
        from numdrift.harness.engines.engine import EngineSettings
        from numdrift.harness.engines.engine_task import read_task
        task = read_task(Path({str(task.folder)!r}))
        end = executed_task(task, "local", EngineSettings(task.folder), lambda line: print(line, flush=True))
        print(end.exit_code)
    """
    return [sys.executable, "-c", heeding(textwrap.dedent(program))]


def test_ctrl_c_is_passed_on_and_the_last_words_are_shown(tmp_path: Path) -> None:
    script = f"trap 'sleep 0.3; echo what is known; exit 130' INT; {ONCE} while true; do sleep 0.02; done"
    task = shell_task(tmp_path, "a", script)
    process = subprocess.Popen(driver(task), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: executions(tmp_path, "a") == 1)

    process.send_signal(signal.SIGINT)

    stdout, stderr = process.communicate(timeout=30)
    assert lines_of(stdout.splitlines()) == ["what is known"] and "KeyboardInterrupt" in stderr


def test_a_task_that_still_runs_is_followed_and_no_other_replaces_it(tmp_path: Path) -> None:
    # given a task whose driver was killed
    script = f"{ONCE} echo begins; until test -e go; do sleep 0.01; done; echo ends"
    task = shell_task(tmp_path, "a", script)
    process = subprocess.Popen(driver(task), stdout=subprocess.DEVNULL)
    until(lambda: executions(tmp_path, "a") == 1)
    process.kill()
    process.wait()
    # when another command wants the folder, and then the same command
    with pytest.raises(UsageError, match=r"another command still runs in .*/a, on .*; wait for its end, or choose"):
        followed(replace(task, command=["true"]), [])
    lines: list[str] = []
    thread = threading.Thread(target=followed, args=(task, lines))
    thread.start()
    until(lambda: "begins" in lines)
    (task.folder / "go").touch()
    thread.join()
    # then it is executed once, and all that it prints is shown
    assert executions(tmp_path, "a") == 1 and lines_of(lines) == ["begins", "ends"]

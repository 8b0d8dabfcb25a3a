from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.launch.run_ending import Ending, ending
from numdrift.harness.launch.running_process import Ended, ProcessEnd
from numdrift.harness.records.frames import EVENTS, REFUSED
from numdrift.harness.runs.journal import Journal
from numdrift.harness.runs.manifest import STATUSES

NOTHING: dict[str, Any] | None = None
TRACEBACK = "Traceback (most recent call last):\n  File x\nImportError: no module\n\n"


def said(status: str, message: str = "") -> dict[str, Any]:
    """The last line of a process that could say how it ended."""
    return {"event": "end", "status": status} | ({"message": message} if message else {})


def decide(folder: Path, last: dict[str, Any] | None, why: Ended, returncode: int, stderr: str) -> Ending:
    (folder / EVENTS).write_text(json.dumps(last) + "\n" if last else "")
    (folder / "stderr.log").write_text(stderr)
    return ending(Journal(folder), ProcessEnd(returncode, why, 12.4), folder / "stderr.log")


@pytest.mark.parametrize(
    ("last", "why", "returncode", "status", "message"),
    [
        (said("complete"), "exited", 0, "complete", ""),
        (said("crashed", "ValueError: x"), "exited", 1, "crashed", "ValueError: x"),
        (said("nonfinite", "from step 3 on"), "exited", 0, "nonfinite", "from step 3 on"),
        (said("out-of-memory", "can't allocate"), "exited", 1, "out-of-memory", "can't allocate"),
        (said("killed", "interrupted"), "exited", 130, "killed", "interrupted"),
        (said(REFUSED, "there is no backend"), "exited", 2, "refused", "there is no backend"),
        (said("complete"), "exited", -signal.SIGSEGV, "complete", ""),
        (NOTHING, "exited", -signal.SIGKILL, "killed", "by SIGKILL"),
        (NOTHING, "exited", -signal.SIGSEGV, "killed", "by SIGSEGV"),
        (NOTHING, "exited", -63, "killed", "by signal 63"),
        (NOTHING, "exited", 1, "crashed", "exit code 1: ImportError: no module"),
        (NOTHING, "exited", 0, "complete", "its journal has no end"),
        (NOTHING, "timeout", -signal.SIGTERM, "timeout", "it ran out of time after 12 s"),
        (said("complete"), "timeout", 0, "timeout", "it ran out of time after 12 s"),
        (
            NOTHING,
            "out-of-memory",
            -signal.SIGKILL,
            "out-of-memory",
            "the operating system killed it for lack of memory",
        ),
        (NOTHING, "interrupted", -signal.SIGINT, "killed", "interrupted"),
        (said("killed", "by its own account"), "interrupted", 130, "killed", "interrupted"),
    ],
)
def test_status_of_a_run(
    tmp_path: Path, last: dict[str, Any] | None, why: Ended, returncode: int, status: str, message: str
) -> None:
    found = decide(tmp_path, last, why, returncode, TRACEBACK)
    assert found.status == status and status in STATUSES
    assert found.message.startswith(message) and bool(found.message) == bool(message)


def test_a_script_that_refuses_its_arguments_says_why(tmp_path: Path) -> None:
    refusal = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --accum 4\n"
    exited = said("crashed", "the script called sys.exit(2)")

    found = decide(tmp_path, exited, "exited", 2, refusal)

    assert found.message == "the script called sys.exit(2) (train.py: error: unrecognized arguments: --accum 4)"
    assert decide(tmp_path, exited, "exited", 2, "").message == "the script called sys.exit(2)"


def test_a_crash_that_printed_nothing(tmp_path: Path) -> None:
    assert decide(tmp_path, NOTHING, "exited", 3, "").message == "exit code 3: it printed nothing"


def test_the_last_line_of_a_long_log_is_found(tmp_path: Path) -> None:
    found = decide(tmp_path, NOTHING, "exited", 3, "é" * 50_000 + "\nlast\n")
    assert found.message == "exit code 3: last"

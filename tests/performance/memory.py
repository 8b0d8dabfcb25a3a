"""The memory of a command and of all processes that it starts, each shared page counted once."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

EVERY = 0.2  # seconds
SHARE = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


def peak_of(command: Sequence[str], env: Mapping[str, str], folder: Path) -> tuple[int, int]:
    """Run a command; give the largest number of bytes that it and its descendants had at a time, and its exit code.

    A process counts with its proportional set size: pages that n processes share count an n-th in each. The processes are read
    one after the other; where one begins or ends in between, its part of the pages goes over to others that are read later, and
    would count twice, so such a sum is left out.
    """
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, env=env, stdin=quiet, stdout=quiet, stderr=quiet) as process:
        peak = peak_while(process, EVERY)
    return peak, process.returncode


def peak_while(process: subprocess.Popen[Any], every: float) -> int:
    """Look at a process every so many seconds until it ends, and give the peak of the bytes as in `peak_of`."""
    peak = 0
    while process.poll() is None:
        alive = descendants(process.pid)
        together = sum(map(proportional_bytes, alive))
        if descendants(process.pid) == alive:
            peak = max(peak, together)
        time.sleep(every)
    return peak


def descendants(root: int) -> list[int]:
    """The process and all that it has started and not ended, by way of others too. Who was adopted by another process is still found by its
    session, which is that of one of them."""
    parents, sessions, ended = {}, {}, set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # after the name, which may hold blanks: state, parent, group, session
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)], sessions[int(folder.name)] = int(fields[1]), int(fields[3])
                if fields[0] in "ZX":  # it has given its memory back, and only waits for its parent
                    ended.add(int(folder.name))
    found = {root}
    ours = os.getsid(0)
    while more := {
        one
        for one in parents
        if one not in found and (parents[one] in found or (sessions[one] in found and sessions[one] != ours))
    }:
        found |= more
    return sorted(found - ended)


def proportional_bytes(process: int) -> int:
    """Zero of one that has ended."""
    with suppress(OSError):
        match = SHARE.search(Path(f"/proc/{process}/smaps_rollup").read_text())
        return int(match[1]) * 1024 if match else 0
    return 0

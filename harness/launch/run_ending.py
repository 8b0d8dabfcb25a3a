"""How a run ended, from what its process said last and how the process itself went."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from ..records.frames import REFUSED
from ..runs.journal import Journal
from ..runs.manifest import INTERRUPTED
from .supervise import ProcessEnd


@dataclass(frozen=True, slots=True)
class Ending:
    """A status of the manifest, and one line on it."""

    status: str
    message: str = ""


def ending(journal: Journal, end: ProcessEnd, stderr: Path) -> Ending:
    """Decide the status of a run whose process has ended."""
    if end.why == "timeout":
        return Ending("timeout", f"its {end.seconds:.0f} s were over (--timeout, or the mode's timeout key)")
    if end.why == "out-of-memory":
        return Ending("out-of-memory", "the kernel killed it for lack of memory")
    if end.why == "interrupted":
        return Ending("killed", INTERRUPTED)
    if end.why == "with-another":
        return Ending("killed", "ended because another rank had failed")
    if journal.end is not None:
        said = journal.end["status"]
        return Ending("crashed" if said == REFUSED else said, journal.end.get("message", ""))
    if end.returncode < 0:
        return Ending("killed", f"by {_signal_name(-end.returncode)}")
    if end.returncode == 0:
        return Ending(
            "complete",
            "its journal has no end: the script left by os._exit, or the journal could not be written on",
        )
    return Ending("crashed", f"exit code {end.returncode}: {_last_line(stderr)}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(path: Path) -> str:
    """The last line of a log, read from its end."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"

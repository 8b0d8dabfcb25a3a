"""How a run ended, from what its process said last, how that went, and of several processes what they come to."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..drift.agreement import agreement
from ..records.frames import REFUSED
from ..runs.journal import Journal
from ..runs.manifest import INTERRUPTED, RunManifest
from ..runs.recorded_run import RecordedRun
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


def run_manifest(runs: Sequence[RecordedRun], end: ProcessEnd) -> RunManifest:
    """The manifest of a run from its ranks', rank 0's first: that of rank 0, with how the run as a whole went."""
    manifests = [run.manifest for run in runs]
    outcome = run_ending(manifests, end)
    others = [
        f"rank {one.rank}: {notice}"
        for one in manifests[1:]
        for notice in one.notices
        if notice not in manifests[0].notices
    ]
    agreed = agreement(runs)
    return replace(
        manifests[0],
        status=outcome.status,
        message=outcome.message,
        exit_code=end.returncode,
        seconds=round(end.seconds, 3),
        notices=[*manifests[0].notices, *others],
        ranks=[_described(run) for run in runs],
        agreement=None if agreed is None else asdict(agreed),
    )


def run_ending(manifests: Sequence[RunManifest], end: ProcessEnd) -> Ending:
    """The status of the run: that of the first rank to fail, which is named."""
    if end.why == "interrupted":
        return Ending("killed", INTERRUPTED)
    if end.why == "timeout":
        steps = ", ".join(f"rank {one.rank} {one.steps:,}" for one in manifests)
        failed = manifests[end.rank]
        first = f"; rank {end.rank} had failed: {failed.message}" if failed.status == "crashed" else ""
        said = f"its {end.seconds:.0f} s were over (--timeout, or the mode's timeout key); steps ended: {steps}{first}"
        return Ending("timeout", said)
    found = manifests[end.rank]
    if not end.returncode:
        found = next((one for one in manifests if one.status != "complete"), found)
    if found.status == "complete" and end.returncode == 0:
        return Ending("complete", found.message)
    status = "crashed" if found.status == "complete" else found.status
    return Ending(status, f"rank {found.rank}: {found.message or f'exit code {found.exit_code}'}")


def _described(run: RecordedRun) -> dict[str, Any]:
    manifest = run.manifest
    return {
        "rank": manifest.rank,
        "path": run.path.name if manifest.rank else ".",
        "status": manifest.status,
        "message": manifest.message,
        "steps": manifest.steps,
        "exit_code": manifest.exit_code,
        "losses": [loss for loss in run.journal.losses[-1:] if loss - loss == 0.0],
    }

"""How a run ended, from what its process said last and how that process went; of several ranks what they come to."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..drift.agreement import agreement
from ..records.frames import REFUSED
from ..runs.journal import Journal
from ..runs.manifest import INTERRUPTED, RunManifest
from ..runs.recorded_run import RecordedRun
from .running_process import ProcessEnd


@dataclass(frozen=True, slots=True)
class Ending:
    """A status of the manifest, and one line on it."""

    status: str
    message: str = ""


def ending(journal: Journal, end: ProcessEnd, stderr: Path) -> Ending:
    """Decide the status of a run whose process has ended."""
    # What we did to it comes first: a process that was asked to end may still have written how it went.
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
        try:
            name = signal.Signals(-end.returncode).name
        except ValueError:  # a real-time signal has no name
            name = f"signal {-end.returncode}"
        return Ending("killed", f"by {name}")
    if end.returncode == 0:
        said = "its journal has no end: the script left by os._exit, or the journal could not be written on"
        return Ending("complete", said)
    # Read from its end: a script may have logged gigabytes.
    with stderr.open("rb") as file:
        file.seek(max(0, stderr.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return Ending("crashed", f"exit code {end.returncode}: {lines[-1] if lines else 'it said nothing'}")


def run_manifest(runs: Sequence[RecordedRun], end: ProcessEnd) -> RunManifest:
    """The manifest of a run from its ranks', rank 0's first: that of rank 0, with how the run as a whole went."""
    first, *others = manifests = [run.manifest for run in runs]
    outcome = run_ending(manifests, end)
    # Ranks run one script, so most of what the others notice is what rank 0 has said already.
    more = [f"rank {one.rank}: {notice}" for one in others for notice in one.notices if notice not in first.notices]
    ranks = [
        {
            "rank": one.rank,
            "path": run.path.name if one.rank else ".",
            "status": one.status,
            "message": one.message,
            "steps": one.steps,
            "exit_code": one.exit_code,
            # The last loss, unless it is NaN or infinite: JSON has neither.
            "losses": [loss for loss in run.journal.losses[-1:] if loss - loss == 0.0],
        }
        for run, one in zip(runs, manifests, strict=True)
    ]
    agreed = agreement(runs)
    return replace(
        first,
        status=outcome.status,
        message=outcome.message,
        exit_code=end.returncode,
        seconds=round(end.seconds, 3),
        notices=[*first.notices, *more],
        ranks=ranks,
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
    # All processes may end well and a rank's journal still say that its script failed.
    if not end.returncode:
        found = next((one for one in manifests if one.status != "complete"), found)
    if found.status == "complete" and end.returncode == 0:
        return Ending("complete", found.message)
    status = "crashed" if found.status == "complete" else found.status
    return Ending(status, f"rank {found.rank}: {found.message or f'exit code {found.exit_code}'}")

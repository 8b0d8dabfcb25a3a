"""The ending of a run, from its journal and the exit of its process, or of all ranks if it has several."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..drift.agreement import agreement
from ..records import frames
from ..runs.journal import Journal
from ..runs.manifest import INTERRUPTED, RunManifest
from ..runs.recorded_run import RecordedRun
from .running_process import ProcessEnd


@dataclass(frozen=True, slots=True)
class Ending:
    """A status of the manifest, and a line that explains it."""

    status: str
    message: str = ""


def _out_of_time(end: ProcessEnd) -> str:
    return f"it ran out of time after {end.seconds:.0f} s (--timeout, or the mode's timeout key)"


def ending(journal: Journal, end: ProcessEnd, stderr: Path) -> Ending:
    """Return the status of a run whose process has ended."""
    # Actions of this process come first: a process that was asked to end may still have written its own ending.
    if end.why == "timeout":
        return Ending("timeout", _out_of_time(end))
    if end.why == "out-of-memory":
        return Ending("out-of-memory", "the operating system killed it for lack of memory")
    if end.why == "interrupted":
        return Ending("killed", INTERRUPTED)
    if end.why == "lost":
        return Ending("killed", "its machine, or the numdrift that watched it there, no longer answers")
    if end.why == "with-another":
        return Ending("killed", "ended because another rank had failed")
    if journal.end is not None:
        status, message = str(journal.end["status"]), str(journal.end.get("message", ""))
        # A script that refuses its arguments says why and calls sys.exit, which has no message.
        words = _last_line(stderr) if message.startswith(frames.CALLED_EXIT) and not journal.steps else ""
        return Ending(status, f"{message} ({words})" if words else message)
    if end.returncode < 0:
        try:
            name = signal.Signals(-end.returncode).name
        except ValueError:  # a real-time signal has no name
            name = f"signal {-end.returncode}"
        return Ending("killed", f"by {name}")
    if end.returncode == 0:
        outcome = "its journal has no end: the script called os._exit, or the journal could no longer be written"
        return Ending("complete", outcome)
    return Ending("crashed", f"exit code {end.returncode}: {_last_line(stderr) or 'it printed nothing'}")


def _last_line(path: Path) -> str:
    """Return the last line of a log; "" if it is empty or unreadable."""
    try:
        # Only the end of the file is read: a script may have logged gigabytes.
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def run_manifest(runs: Sequence[RecordedRun], end: ProcessEnd) -> RunManifest:
    """Return rank 0's manifest with the ending of the whole run and the notices of all ranks. Rank 0 is `runs[0]`."""
    rank_0, *other_ranks = manifests = [run.manifest for run in runs]
    outcome = run_ending(manifests, end)
    # Ranks run the same script, so most of their notices are also notices of rank 0.
    more = [
        f"rank {manifest.rank}: {notice}"
        for manifest in other_ranks
        for notice in manifest.notices
        if notice not in rank_0.notices
    ]
    ranks = [
        {
            "rank": manifest.rank,
            "path": run.path.name if manifest.rank else ".",
            "status": manifest.status,
            "message": manifest.message,
            "steps": manifest.steps,
            "exit_code": manifest.exit_code,
            # The last loss, unless it is NaN or infinite: JSON has neither.
            "losses": [loss for loss in run.journal.losses[-1:] if loss - loss == 0.0],
        }
        for run, manifest in zip(runs, manifests, strict=True)
    ]
    agreed = agreement(runs)
    return replace(
        rank_0,
        status=outcome.status,
        message=outcome.message,
        exit_code=end.returncode,
        seconds=round(end.seconds, 3),
        notices=[*rank_0.notices, *more],
        ranks=ranks,
        agreement=None if agreed is None else asdict(agreed),
    )


def run_ending(manifests: Sequence[RunManifest], end: ProcessEnd) -> Ending:
    """Return the ending of the run: that of the first rank to fail, with the rank's number."""
    if end.why == "interrupted":
        return Ending("killed", INTERRUPTED)
    if end.why == "timeout":
        steps = ", ".join(f"{manifest.steps:,} on rank {manifest.rank}" for manifest in manifests)
        failed = manifests[end.rank]
        failure = f"; rank {end.rank} had failed: {failed.message}" if failed.status == "crashed" else ""
        return Ending("timeout", f"{_out_of_time(end)}; completed steps: {steps}{failure}")
    decisive = manifests[end.rank]
    # All processes may exit with 0 although a rank's journal says that its script failed.
    if not end.returncode:
        decisive = next((manifest for manifest in manifests if manifest.status != "complete"), decisive)
    if decisive.status == "complete" and end.returncode == 0:
        return Ending("complete", decisive.message)
    status = "crashed" if decisive.status == "complete" else decisive.status
    return Ending(status, f"rank {decisive.rank}: {decisive.message or f'exit code {decisive.exit_code}'}")

"""Reading the sketches that a run recorded beside its digests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..errors import JournalError
from ..records import frames
from ..records.sketch_record import SKETCH_BYTES, Sketch, unpack_sketches
from .recorded_run import RecordedRun
from .run_layout import JOURNAL


@dataclass(frozen=True, slots=True)
class StepSketches:
    """The sketches of one step by tensor, of what this rank adds to the whole; None where there is none."""

    values: Mapping[str, Sketch | None]
    gradients: Mapping[str, Sketch | None]


def has_sketches(run: RecordedRun) -> bool:
    return (run.path / JOURNAL / frames.SKETCHES).exists()


def sketches_of(run: RecordedRun) -> Iterator[tuple[int, StepSketches]]:
    """The sketches of each recorded step that has them, in order.

    Raises JournalError when a step has more or fewer than its table says.
    """
    path, journal = run.path / JOURNAL / frames.SKETCHES, run.journal
    recorded = {record.step for record in journal.steps}
    for frame in frames.scan_frames(path):
        if frame.step not in recorded or frame.table not in journal.tables:
            continue
        entries = journal.tables[frame.table]
        parameters = [entry.name for entry in entries if entry.kind == "parameter"]
        with path.open("rb") as file:
            file.seek(frame.offset)
            data = file.read(frame.length)
        if len(data) != (len(entries) + len(parameters)) * SKETCH_BYTES:
            raise JournalError(path, f"step {frame.step} has {len(data)} bytes, its table says otherwise")
        found = list(unpack_sketches(data))
        yield (
            frame.step,
            StepSketches(
                dict(zip((entry.name for entry in entries), found[: len(entries)], strict=True)),
                dict(zip(parameters, found[len(entries) :], strict=True)),
            ),
        )

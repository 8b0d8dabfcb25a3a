"""Reads of memory that was allocated and never filled. A run records them beside the tapes of its steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..codec import json_text, plain, read_fields
from .call_record import CallRecord

PLACE = "tapes/unfilled-{step}.json"
"""The path, within a run's folder, of the file with the reads of a step."""


@dataclass(frozen=True, slots=True)
class UnfilledRead:
    """A read of unfilled memory. A result of the step depends on the arbitrary values in this memory.

    call: the script's call that returned the unfilled memory
    made_by: the op within that call that allocated the memory
    read_by: the call that reads it, None if it is not known
    """

    call: CallRecord
    made_by: str
    read_by: CallRecord | None = None


def write_unfilled(run: Path, reads: Sequence[UnfilledRead]) -> None:
    """Write the reads of one step. Raises OSError."""
    path = run / PLACE.format(step=f"{reads[0].call.step:06d}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text({"schema": 1, "reads": plain(reads)}, indent=1), encoding="utf-8")


def read_unfilled(run: Path) -> list[UnfilledRead]:
    """Return the reads of all steps of a run, in order; a damaged file contributes none."""
    reads: list[UnfilledRead] = []
    for path in sorted(run.glob(PLACE.format(step="*"))):
        try:
            reads += [read_fields(UnfilledRead, item) for item in json.loads(path.read_text(encoding="utf-8"))["reads"]]
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return reads

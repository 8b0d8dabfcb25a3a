"""The journal's files and the binary frames in them, for both the recorder and the readers.

    events.jsonl    one JSON object per line: start, initial, adopted, compiling, compiled, hyper, tensors, step,
                    logged, spike, thinned, overhead, notice, end
    digests.bin     one frame per step: the digest records of its tensors
    values-N.bin    one frame per kept step: the tensors' bytes; 2**N is the largest power of two that divides the step
    values-last.bin the last step's values, written when the script ends
    sketches.bin    one frame per step: the sketches of its tensors, for sharded runs (or with --sketches)
    ops.jsonl       one JSON object per op (record level `ops`)
    calls.jsonl     one JSON list per call, in experiments on nondeterminism; see records/values/call_record.py
    tensors.bin     one frame per op output (record level `tensors`)
    kernels.bin     the number of calls of each swapped kernel; see numdrift.kernels.swaps.counts

A frame is a header, the payload and a trailer. If a kill of the process cut a frame off, the frame has no trailer, and
readers drop it.

A step counts as recorded once its line is in events.jsonl. The line is written after the step's frames.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOURNAL_SCHEMA = 1
EVENTS = "events.jsonl"
DIGESTS = "digests.bin"
SKETCHES = "sketches.bin"
OPS = "ops.jsonl"
TENSORS = "tensors.bin"
KERNELS = "kernels.bin"
LAST_VALUES = "values-last.bin"
CALLED_EXIT = "the script called sys.exit"
"""The beginning of the message of a run whose script ended itself with an exit code."""

REFUSED = "refused"
"""The status in the end event of a run that numdrift refused to start, to continue or to accept."""


FULL = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of the system's errors for a full disk and for a used-up quota."""


def values_file(level: int) -> str:
    return f"values-{level}.bin"


HEADER = struct.Struct("<4sIQQ")
"""The header: magic, table (or op index), step, payload length in bytes."""
TRAILER = struct.Struct("<4sIQ")
"""The trailer: a magic of its own, then the header's table and step. A frame without it is torn."""
MAGIC = b"NDF1"
END_MAGIC = b"1FDN"


@dataclass(frozen=True, slots=True)
class FrameAt:
    """The position of one frame's payload: `offset` and `length` in bytes of the file."""

    step: int
    table: int
    offset: int
    length: int


def header(table: int, step: int, length: int) -> bytes:
    return HEADER.pack(MAGIC, table, step, length)


def trailer(table: int, step: int) -> bytes:
    return TRAILER.pack(END_MAGIC, table, step)


def scan_frames(path: Path) -> Iterator[FrameAt]:
    """Yield the complete frames of a file, up to the first torn one, without reading their payloads."""
    if not path.exists():
        return
    # A payload may be gigabytes long, so it is skipped. A trailer and the header after it are read together, without a
    # buffer: a long run has a hundred thousand frames, and filling a buffer for each would read most of the file.
    with path.open("rb", buffering=0) as file:
        number, position, size = file.fileno(), 0, path.stat().st_size
        begin = os.pread(number, HEADER.size, 0)
        while position + HEADER.size + TRAILER.size <= size:
            magic, table, step, length = HEADER.unpack(begin)
            offset = position + HEADER.size
            position = offset + length + TRAILER.size
            if magic != MAGIC or position > size:  # without a valid length, the next frame cannot be found
                return
            ending = os.pread(number, TRAILER.size + HEADER.size, offset + length)
            if TRAILER.unpack_from(ending) != (END_MAGIC, table, step):
                return
            begin = ending[TRAILER.size :]
            yield FrameAt(step, table, offset, length)


# For the files of events that a guest writes beside the journal: one JSON object per line, appended when the event
# happens.


def append_event(path: Path, event: str, **fields: Any) -> None:
    """Append one line, which survives a kill of the process. Raises OSError, for example if the disk is full."""
    line = json.dumps({"event": event, **fields}, separators=(",", ":"))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def complete_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of the complete lines. If the process was killed, its last line may be torn.

    Raises OSError, and ValueError for a line that is not JSON.
    """
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)

"""The call counts of swapped kernels, in a file that survives the process, even if a kernel crashes it.

The file is mapped into memory. Each count is one store into this memory, which the operating system preserves however
the process ends. A record contains five unsigned 64-bit counts: calls in the forward, the backward and the optimizer,
places where a compiler traced the kernel into its graph, and calls that have not ended.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

COLUMNS = ("forward", "backward", "optimizer", "traced", "running")
RECORD = struct.Struct(f"={len(COLUMNS)}Q")


@dataclass(frozen=True, slots=True)
class SwapCounts:
    """The calls of one swapped kernel by phase; `running` counts calls that have begun but not ended."""

    forward: int = 0
    backward: int = 0
    optimizer: int = 0
    traced: int = 0
    running: int = 0

    @property
    def calls(self) -> int:
        return self.forward + self.backward + self.optimizer

    def by_phase(self) -> dict[str, int]:
        """Return the counts in the form of the manifest."""
        return {name: count for name, count in asdict(self).items() if name != "running"}


class CountsFile:
    """The counts of one run, one record per swap."""

    def __init__(self, path: Path | None, records: int) -> None:
        size = max(1, records) * RECORD.size
        self._path = path
        if path is not None:
            path.write_bytes(bytes(size))
            with path.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), size)
        else:
            self._memory = mmap.mmap(-1, size)
        self._numbers = memoryview(self._memory).cast("Q")

    def add(self, record: int, column: str) -> None:
        self._numbers[record * len(COLUMNS) + COLUMNS.index(column)] += 1

    def enter(self, record: int) -> None:
        """Record that a call of the kernel begins."""
        self._numbers[record * len(COLUMNS) + COLUMNS.index("running")] += 1

    def leave(self, record: int) -> None:
        """Record that a call of the kernel has ended, with or without an error."""
        self._numbers[record * len(COLUMNS) + COLUMNS.index("running")] -= 1

    def read(self) -> list[SwapCounts]:
        return [SwapCounts(*numbers) for numbers in RECORD.iter_unpack(self._memory[:])]

    def forget(self) -> None:
        """Count in this process's own memory from now on, because this process is a fork of the counted process."""
        copy = mmap.mmap(-1, len(self._memory))
        copy[:] = self._memory[:]
        self._memory, self._numbers = copy, memoryview(copy).cast("Q")


def read_counts(path: Path, records: int) -> list[SwapCounts]:
    """Return the counts that a run wrote, or zeros if it wrote none."""
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) // RECORD.size * RECORD.size
    counts = [SwapCounts(*numbers) for numbers in RECORD.iter_unpack(data[:whole])]
    return [*counts, *[SwapCounts()] * records][:records]

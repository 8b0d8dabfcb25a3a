"""Two equal journals of a long run, and their comparison by a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from numdrift.harness.records import frames
from numdrift.harness.records.values.digest_record import RECORD_BYTES
from numdrift.harness.tape.files.journal_writing import EventLog, FrameFile

COMPARISON = """
import sys
from pathlib import Path

from numdrift.harness.drift.recorded_drift import common_digests, differing_tensors
from numdrift.harness.runs.journal import Journal

a, b = (Journal(Path(folder)) for folder in sys.argv[1:])
assert sum(not any(differing_tensors(x, y)) for _, x, y in common_digests(a, b)) == len(a.steps)
# ru_maxrss would include the memory of the process that has started this one.
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """seconds: of the whole process. peak: the most memory that it has used, in bytes. size: bytes of one journal."""

    seconds: float
    peak: int
    size: int


def compare_journals(steps: int, tensors: int, rounds: int) -> list[Compared]:
    """Compare the digests of two journals, as often as `rounds` says."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        a, b = Path(folder, "a"), Path(folder, "b")
        _write_journal(a, steps, tensors)
        b.mkdir()
        for file in a.iterdir():
            os.link(file, b / file.name)  # they are equal; the disk need not hold them twice
        size = sum(file.stat().st_size for file in a.iterdir())
        for _ in range(rounds):
            began = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", COMPARISON, a, b], check=True, capture_output=True, text=True)
            found.append(Compared(time.perf_counter() - began, 1024 * int(done.stdout), size))
    return found


def _write_journal(folder: Path, steps: int, tensors: int) -> None:
    """Write a journal with random digests of parameters and gradients, which is the same for equal sizes."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    log, digests = EventLog(folder / frames.EVENTS), FrameFile(folder / frames.DIGESTS)
    described = {"kind": "parameter", "shape": [64, 64], "dtype": "float32"}
    log.write("tensors", table=0, tensors=[{"name": f"layers.{i}.weight", **described} for i in range(tensors)])
    for step in range(steps):
        records = generator.bytes(2 * tensors * RECORD_BYTES)
        digests.frame(0, step, [records], len(records))
        log.write("step", step=step, losses=[1 / (step + 1)], seconds=step / 100, generators={"torch": f"{step:016x}"})

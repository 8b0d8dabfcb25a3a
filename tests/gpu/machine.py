"""What the machine is: its date, its GPU with its driver, torch, Python and the processors."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shutil
import subprocess
import threading
from types import TracebackType
from typing import Self

SMI = "nvidia-smi"

EVERY = 0.1
"""Seconds between two samples; asking takes about as long."""


def facts(device: str, jobs: int) -> dict[str, str]:
    """Return what the page says of the machine, by name."""
    found = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": device,
        "torch": importlib.metadata.version("torch"),
        "python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0))),
        "jobs": str(jobs),
    }
    if gpu := query("gpu", "name,driver_version,memory.total"):
        name, driver, memory = (part.strip() for part in gpu[0].split(","))
        found |= {"gpu": name, "driver": driver, "gpu memory": memory}
    return found


def query(what: str, fields: str) -> list[str]:
    """Ask NVIDIA's tool; no lines where there is none."""
    if shutil.which(SMI) is None:
        return []
    command = [SMI, f"--query-{what}={fields}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def processes_on_gpu() -> set[int]:
    """Return the processes that have something on a GPU."""
    return {int(line) for line in query("compute-apps", "pid") if line.strip().isdigit()}


class MemorySamples:
    """Samples of the memory that is taken on the first GPU, in MiB, while a block runs.

    `peak` is the largest of them over `before`, what was taken when the block began; 0 where NVIDIA's tool is not here.
    """

    def __init__(self) -> None:
        self.before, self.peak = 0.0, 0.0
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self.before = memory_taken()
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._sampler.join()

    def _sample(self) -> None:
        while shutil.which(SMI) and not self._over.wait(EVERY):
            self.peak = max(self.peak, memory_taken() - self.before)


def memory_taken() -> float:
    """Return what is taken on the first GPU, in MiB."""
    return _number((query("gpu", "memory.used") or [""])[0])


def _number(text: str) -> float:
    """Return the number of `1234 MiB`; 0 of anything else."""
    first = text.split()[0] if text.split() else ""
    return float(first) if first.replace(".", "", 1).isdigit() else 0.0

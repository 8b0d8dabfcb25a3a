"""The memory of a model of 354 million parameters: bare, recorded, and recorded with the tape of a step."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from .memory import EVERY, descendants, peak_of, proportional_bytes
from .turns import NUMDRIFT
from .workloads import ROOT

SCRIPT, ARGUMENTS = "tests/performance/ordinary_models.py", ("gpt2-medium", "--steps", "4")

NEEDED = 16
"""GiB of memory that must be free: more than twice what the bare script takes."""

LEFT = 2 * 2**30
"""Bytes of memory that are left to the machine: a way that takes more is ended."""


def large_model_peaks() -> dict[str, tuple[int, bool]]:
    """Return the peak of the memory of all processes in bytes, by way; nothing if the machine has too little memory.

    A way that takes all memory of the machine is ended there; then the second value is True, and the peak is what it
    has taken until then. "tape" is
    `numdrift reference --keep ops`. It trains the script twice. The second training records a step's ops and the values
    that they read, and replays them with random rounding.
    """
    free = available() / 2**30
    if free < NEEDED:
        print(f"  left out: {free:.0f} GiB of memory are free, and {NEEDED} GiB may be needed", file=sys.stderr)
        return {}
    with tempfile.TemporaryDirectory() as folder:
        to = ["--out", folder, "--", *ARGUMENTS]
        ways = {
            "bare": [sys.executable, SCRIPT, *ARGUMENTS],
            "params": [*NUMDRIFT, "run", SCRIPT, "--modes", "cpu", "--name", "params", *to],
            "ops": [*NUMDRIFT, "run", SCRIPT, "--modes", "cpu", "--record", "ops", "--name", "ops", *to],
            "tape": [*NUMDRIFT, "reference", SCRIPT, "--keep", "ops", "--steps", "2", "--to", f"{folder}/to.zip", *to],
        }
        return {way: _peak(way, command) for way, command in ways.items()}


def available() -> int:
    """Return the bytes of memory that processes can still take."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024


def _peak(way: str, command: list[str]) -> tuple[int, bool]:
    finished, killed = threading.Event(), threading.Event()

    def end_what_takes_all() -> None:
        while not finished.wait(EVERY):
            if available() < LEFT:
                killed.set()
                own = set(descendants(os.getpid())) - {os.getpid()}
                os.kill(max(own, key=proportional_bytes), signal.SIGKILL)
                return

    threading.Thread(target=end_what_takes_all, daemon=True).start()
    peak, code = peak_of(command, os.environ, ROOT)
    finished.set()
    if code and not killed.is_set():
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}")
    return peak, killed.is_set()

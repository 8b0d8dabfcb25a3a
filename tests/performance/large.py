"""The memory of a model of 354 million parameters: bare, recorded, and recorded with the tape of a step."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from .memory import peak_of
from .turns import NUMDRIFT
from .workloads import ROOT

SCRIPT, ARGUMENTS = "tests/performance/ordinary_models.py", ("gpt2-medium", "--steps", "4")

NEEDED = 20
"""GiB of memory that must be free: three times what the bare script takes, and room for the machine."""


def large_model_peaks() -> dict[str, int]:
    """Return the peak of the memory of all processes in bytes, by way; nothing if the machine has too little memory.

    "tape" is `numdrift reference --keep ops`. It trains the script twice. The second training records a step's ops and
    the values that they read, and replays them with random rounding.
    """
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 2**20
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
        return {way: _peak(command) for way, command in ways.items()}


def _peak(command: list[str]) -> int:
    peak, code = peak_of(command, os.environ, ROOT)
    if code:
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}")
    return peak

"""The memory of the stand-in over all processes, as its ledger counts it."""

from __future__ import annotations

import struct
from pathlib import Path


def peak_bytes(ledger: Path) -> int:
    """The most bytes that all processes together have ever kept."""
    return int(struct.unpack_from("q", ledger.read_bytes())[0])

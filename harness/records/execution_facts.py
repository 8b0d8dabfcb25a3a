"""Which execution a snapshot is of, and the words for what it holds. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

INPUTS, OUTPUTS = "inputs", "outputs"
KEYWORDS = (INPUTS, OUTPUTS)
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a graph. `count` says how often that graph had run before on this device."""

    name: str
    phase: str
    step: int
    count: int
    device_index: int

    @property
    def file(self) -> str:
        """The name of its snapshot's file."""
        return f"{self.name}-step{self.step:06d}-execution{self.count:06d}.safetensors"

    def __str__(self) -> str:
        return f"{self.name} (step {self.step}, execution {self.count})"


def in_mib(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / MIB:,.1f} MiB" if size >= MIB / 10 else f"{size / 1024:,.1f} KiB"

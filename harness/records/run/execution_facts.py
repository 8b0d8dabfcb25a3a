"""The execution that a snapshot shows, and the words for its content. This module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

INPUTS, OUTPUTS = "inputs", "outputs"
KEYWORDS = (INPUTS, OUTPUTS)
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution of a graph; `count` is the number of earlier executions of the graph on this device."""

    name: str
    phase: str
    step: int
    count: int
    device_index: int

    @property
    def file(self) -> str:
        """The name of the file of the execution's snapshot."""
        return f"{self.name}-step{self.step:06d}-execution{self.count:06d}.safetensors"

    def __str__(self) -> str:
        return f"{self.name} (step {self.step}, execution {self.count})"


def in_mib(size: int) -> str:
    """Return a number of bytes as text, in MiB or, if it is small, in KiB."""
    return f"{size / MIB:,.1f} MiB" if size >= MIB / 10 else f"{size / 1024:,.1f} KiB"

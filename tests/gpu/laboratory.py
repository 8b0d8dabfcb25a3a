"""What every row works with: the device, the commands, and a folder for its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .commands import Commands, Done
from .device import Device


@dataclass(frozen=True, slots=True)
class Laboratory:
    """`folder` holds the investigations, each under the name of its row."""

    device: Device
    commands: Commands
    folder: Path

    def run(self, name: str, *words: str, limit: float, **variables: str) -> Done:
        """Run a command of numdrift that makes runs, under a name."""
        command, *rest = words
        return self.commands.numdrift(
            command, "--out", str(self.folder), "--name", name, *rest, limit=limit, variables=variables
        )

    def modes(self, *texts: str) -> list[str]:
        """Return the options that state a row's modes."""
        return [word for text in texts for word in ("--mode", self.device.mode(text))]

    def read(self, *parts: str) -> dict[str, Any]:
        """Read a JSON file of a row's folder. Raises OSError and ValueError."""
        content: dict[str, Any] = json.loads(self.folder.joinpath(*parts).read_text(encoding="utf-8"))
        return content


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measurement found in a phrase, what is `wrong` with it ("" for nothing), and numbers for the page."""

    found: str
    wrong: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


def failed(done: Done) -> Measured:
    """Say that a command did not do what it should."""
    return Measured("failed", done.why())

"""The device that the list runs on: CUDA, or the stand-in of the tests for a dry run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..accelerator.installed import install
from .rows import Bare, Investigation

CUDA, STANDIN = "cuda", "standin"
COMPILED = "compile@cuda"


@dataclass(frozen=True, slots=True)
class Device:
    """`compiled` is a mode that compiles for it. Processes of numdrift get `variables`, plain ones `bare_variables`;
    `slower` is what limits are multiplied by."""

    name: str
    compiled: str
    variables: Mapping[str, str] = field(default_factory=dict)
    bare_variables: Mapping[str, str] = field(default_factory=dict)
    slower: float = 1.0

    @property
    def is_cuda(self) -> bool:
        return self.name == CUDA

    def mode(self, text: str) -> str:
        """Return a row's mode in numdrift's grammar."""
        name, base, keys = parts_of(text)
        base = {CUDA: self.name, COMPILED: self.compiled}.get(base, base.replace(f"{CUDA}:", f"{self.name}:"))
        return f"{name}={base}{keys}" if name else f"{base}{keys}"

    def bare(self, row: Investigation) -> list[Bare]:
        """Return the plain trainings of a row's modes."""
        found = []
        for text in row.modes:
            _, base, keys = parts_of(text)
            stated = dict(key.removeprefix("env.").split("=", 1) for key in keys.split(",") if key.startswith("env."))
            device = self.name if base in (CUDA, COMPILED) else base
            found.append(Bare(row.script, row.arguments, device, base == COMPILED, stated))
        return found


def parts_of(text: str) -> tuple[str, str, str]:
    """Take a mode apart: its name or "", its base, and its keys with the comma before them."""
    head, comma, keys = text.partition(",")
    name, equals, base = head.rpartition("=")
    return (name if equals else ""), base, f"{comma}{keys}"


def opened(name: str, folder: Path) -> Device:
    """Return the device; the stand-in is installed in the folder."""
    if name == CUDA:
        return Device(CUDA, "compile,device=cuda")
    sites = install(folder / "site"), install(folder / "autoload", autoload=True)
    found = [{"PYTHONPATH": os.pathsep.join(path_with(site))} for site in sites]
    return Device(STANDIN, "compile,device=standin,backend=aot_eager", found[0], found[1], slower=6.0)


def path_with(site: Path) -> Sequence[str]:
    return [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]

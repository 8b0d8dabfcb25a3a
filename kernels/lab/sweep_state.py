"""The progress of one kernel's sweep, and its storage between commands.

In the kernel's folder, `sweep.json` contains the identity of the state and the name of the file of arrays,
`bins-<n>.npz`. The arrays are written first, under a new name; then `sweep.json` is replaced atomically. However the
process ends, the folder contains a complete state."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .sweep_bins import BIN, WORST_INPUT, empty_bins, merged_worst, no_worst
from .sweep_candidates import Candidate
from .sweep_domain import Domain

SCHEMA = 1
_FILE = "sweep.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything that a result depends on. A stored state is used only if its identity is the same in every field."""

    op: str
    kernel: str
    dtype: str
    varied: str
    held: str
    range: str
    torch: str
    cpu: str
    source: str

    @classmethod
    def of(cls, candidate: Candidate, domain: Domain) -> Identity:
        subject = candidate.subject
        return cls(
            op=subject.op,
            kernel=candidate.kernel,
            dtype=subject.encoding.name,
            varied=subject.varied,
            held=repr(subject.held),
            range=domain.described(),
            torch=torch.__version__,
            cpu=torch.backends.cpu.get_cpu_capability(),
            source=candidate.source,
        )

    def folder(self, out: Path, *, plain: bool) -> Path:
        """Return the folder of the state. Its name ends in a digest of the settings unless these are all defaults
        (`plain`)."""
        kernel = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in self.kernel)
        name = f"sweep_{self.op}_{self.dtype}_{kernel}"
        if not plain:
            # sweeps that differ in these must not share a state
            special = repr((self.varied, self.held, self.range, self.kernel))
            name += f"_{hashlib.sha256(special.encode()).hexdigest()[:8]}"
        return out / "kernels" / name

    def changes(self, before: Mapping[str, Any]) -> list[str]:
        """Return the differences from another identity, for example `torch 2.12.0 -> 2.13.0`."""
        return [
            f"{name} differs" if name == "source" else f"{name} {before.get(name)} -> {value}"
            for name, value in asdict(self).items()
            if before.get(name) != value
        ]


@dataclass(slots=True)
class SweepProgress:
    """The measurements so far. `done` marks blocks by their number.

    `wall` is the elapsed time in seconds, `thread_seconds` that of all threads together. `plain_seconds` is the time
    that torch's own op took on one thread for `plain_inputs` inputs.
    """

    bins: NDArray[Any]
    done: NDArray[np.bool_]
    worst: NDArray[Any] = field(default_factory=no_worst)
    wall: float = 0.0
    thread_seconds: float = 0.0
    plain_seconds: float = 0.0
    plain_inputs: int = 0

    @classmethod
    def none(cls, domain: Domain) -> SweepProgress:
        encoding = domain.encoding
        return cls(empty_bins(encoding.bins), np.zeros(encoding.patterns // encoding.block, bool))

    def finished(self, domain: Domain) -> bool:
        return bool(self.done[domain.blocks()].all())

    def inputs(self) -> int:
        """Return the number of measured inputs."""
        return int(self.bins["count"].sum())

    def add(self, block: int, first_bin: int, bins: NDArray[Any], worst: NDArray[Any]) -> None:
        """Add a measured block."""
        self.bins[first_bin : first_bin + len(bins)] = bins
        self.worst = merged_worst(self.worst, worst)
        self.done[block] = True


def load(folder: Path, identity: Identity, domain: Domain) -> tuple[SweepProgress | None, str]:
    """Return the stored state and "", or None and the reason why it cannot be used ("" if there is no state)."""
    path = folder / _FILE
    if not path.exists():
        return None, ""
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["schema"] != SCHEMA:
            return None, f"was written by another version of numdrift (schema {about['schema']})"
        if changes := identity.changes(about["identity"]):
            return None, f"belongs to another sweep ({', '.join(changes)})"
        with np.load(folder / Path(about["arrays"]).name, allow_pickle=False) as arrays:
            progress = SweepProgress(arrays["bins"], arrays["done"], arrays["worst"])
        empty = SweepProgress.none(domain)
        if (progress.bins.dtype, progress.bins.shape) != (BIN, empty.bins.shape):
            raise ValueError("bins of another type or shape")
        if progress.done.dtype != np.bool_ or progress.done.shape != empty.done.shape:
            raise ValueError("blocks of another type or shape")
        if progress.worst.dtype != WORST_INPUT:
            raise ValueError("inputs of another type")
        progress.wall, progress.thread_seconds = about["wall"], about["thread_seconds"]
        progress.plain_seconds, progress.plain_inputs = about["plain_seconds"], about["plain_inputs"]
        return progress, ""
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        return None, f"cannot be read ({type(error).__name__})"


def save(folder: Path, identity: Identity, progress: SweepProgress) -> None:
    """Replace the stored state. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    older = sorted(folder.glob("bins-*.npz"))
    number = 1 + max((int(path.stem[5:]) for path in older if path.stem[5:].isdigit()), default=0)
    arrays = folder / f"bins-{number}.npz"
    content = io.BytesIO()
    np.savez(content, bins=progress.bins, done=progress.done, worst=progress.worst)
    arrays.write_bytes(content.getvalue())
    about = {
        "schema": SCHEMA,
        "identity": asdict(identity),
        "arrays": arrays.name,
        "inputs": progress.inputs(),
        "wall": progress.wall,
        "thread_seconds": progress.thread_seconds,
        "plain_seconds": progress.plain_seconds,
        "plain_inputs": progress.plain_inputs,
    }
    # The arrays exist under a new name, so from here on both the old and the new state are complete.
    scratch = folder / f"{_FILE}.new"
    scratch.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    scratch.replace(folder / _FILE)
    for path in older:
        path.unlink(missing_ok=True)

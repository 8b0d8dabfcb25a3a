"""The inputs of a call that were saved before: by torch.save, or in a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..errors import JournalError, SnapshotError, UsageError
from ..records.run.execution_facts import INPUTS
from ..snapshots.snapshot_file import read_snapshot
from ..tape.storages import Storages

SNAPSHOT = ".safetensors"
"""The ending of the name of a snapshot's file."""


def read_saved(path: str) -> Any:
    """Return the inputs in a file: tensors in containers, or the tuple of those that the script gave to the graph of a
    snapshot, without its parameters. Raises UsageError."""
    if path.endswith(SNAPSHOT):
        return _of_snapshot(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001, a file may be damaged in any way
        why = " ".join(str(error).split())[:120]
        raise UsageError(
            f"{path} holds no inputs that can be read safely ({why}): save tensors, or a list or dictionary of "
            "tensors, with torch.save"
        ) from None


def _of_snapshot(path: str) -> tuple[torch.Tensor, ...]:
    try:
        snapshot = read_snapshot(Path(path))
    except (JournalError, SnapshotError) as error:
        raise UsageError(f"--load {error}") from None
    if INPUTS not in snapshot.held:
        raise UsageError(f"{path} holds no inputs: take the snapshot with its inputs (see `numdrift snapshot take -h`)")
    storages = Storages(snapshot.tape, lambda dtype: dtype)
    ports = [port for port in snapshot.inputs if port.kind == "input"] or snapshot.inputs
    return tuple(storages.tensor(port.view).detach().clone() for port in ports)

"""Runs and tensor files as a recorder would leave them, written by hand."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numdrift.harness.records import frames
from numdrift.harness.records.values.digest_record import ABSENT, Digest, pack
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.runs.mapped_tensors import TensorFile
from numdrift.harness.runs.recorded_run import RecordedRun

Array = NDArray[Any]
Argument = tuple[str, Sequence[int], str]

X: Argument = ("float32", (4, 3), "aa")
Y: Argument = ("int64", (4,), "bb")


@dataclass(frozen=True)
class Step:
    """One step to record; the losses of its backwards, and float32 values."""

    losses: Sequence[float] = (1.0,)
    values: Mapping[str, Sequence[float]] = field(default_factory=lambda: {"w": [1.0, 2.0]})
    gradients: Mapping[str, Sequence[float]] = field(default_factory=lambda: {"w": [0.1, 0.2]})
    generators: Mapping[str, str] = field(default_factory=lambda: {"torch": "t", "python": "p"})
    batches: Sequence[Sequence[Argument]] = ((X, Y),)
    optimizer: int | None = None


def digest(array: Array) -> Digest:
    """The digest of an array by its definition."""
    finite = array[np.isfinite(array)].astype(np.float64)
    return Digest(
        hash=int.from_bytes(hashlib.blake2b(array.tobytes(), digest_size=8).digest(), "little") | 1,
        numel=array.size,
        nan=int(np.isnan(array).sum()),
        inf=int(np.isinf(array).sum()),
        minimum=float(finite.min()) if finite.size else math.nan,
        maximum=float(finite.max()) if finite.size else math.nan,
        mean=float(finite.mean()) if finite.size else math.nan,
        l2=float(np.sqrt((finite**2).sum())),
    )


def record(
    path: Path,
    steps: Sequence[Step],
    initial: Mapping[str, Array] | None = None,
    hyper: Sequence[tuple[int, Any]] = (),
    label: str | None = None,
    end: Mapping[str, Any] | None = None,
    said: Sequence[Mapping[str, Any]] = (),
    **manifest: Any,
) -> RecordedRun:
    """Write a run's journal and give the run; `hyper` holds (step, optimizers), `said` other events, `end` what its last
    line says."""
    journal = path / "journal"
    journal.mkdir(parents=True)
    events: list[dict[str, Any]] = []
    if initial:
        tensors = [
            {
                "name": name,
                "kind": "buffer" if array.dtype.kind == "i" else "parameter",
                "shape": list(array.shape),
                "dtype": str(array.dtype),
                "digest": pack(digest(array)).hex(),
            }
            for name, array in initial.items()
        ]
        events.append({"event": "initial", "step": 0, "tensors": tensors})
    events += map(dict, said)
    for since, optimizers in hyper:
        events.append({"event": "hyper", "step": since, "optimizers": optimizers})
    digests = b""
    for number, step in enumerate(steps):
        names = [
            {"name": name, "kind": "parameter", "shape": [len(step.values[name])], "dtype": "float32"}
            for name in step.values
        ]
        events.append({"event": "tensors", "table": number, "tensors": names})
        events.append(
            {
                "event": "step",
                "step": number,
                "losses": [one if math.isfinite(one) else str(one) for one in step.losses],
                "seconds": 0.1,
                "generators": dict(step.generators),
                **({} if step.optimizer is None else {"optimizer": step.optimizer}),
                "batches": [[list(argument) for argument in call] for call in step.batches],
            }
        )
        payload = b"".join(pack(digest(np.array(one, np.float32))) for one in step.values.values())
        for name in step.values:
            known = step.gradients.get(name)
            payload += ABSENT if known is None else pack(digest(np.array(known, np.float32)))
        digests += frames.header(number, number, len(payload)) + payload + frames.trailer(number, number)
    if end is not None:
        events.append({"event": "end", "status": "complete", **end})
    (journal / frames.EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    (journal / frames.DIGESTS).write_bytes(digests)
    return RecordedRun(path, a_manifest(label or path.name, **manifest))


def a_manifest(mode: str, **fields: Any) -> RunManifest:
    known: dict[str, Any] = {
        "mode": mode, "spec": mode, "suffix": "", "reproducer": "train.py", "script_sha256": "0", "arguments": [],
        "record": "params", "started": "", "position": 0, "pickle": "", "status": "complete",
    }  # fmt: skip
    return RunManifest(**{**known, **fields})


def tensors(values: Mapping[str, Any], dtypes: Mapping[str, str] | None = None, **facts: Any) -> TensorFile:
    """A tensor file in memory; lists become float32."""
    arrays = {
        name: value if isinstance(value, np.ndarray) else np.array(value, np.float32) for name, value in values.items()
    }
    return TensorFile(arrays, {name: str(a.dtype) for name, a in arrays.items()} | dict(dtypes or {}), facts)

"""What a step gave as a whole where only the other mode has several processes, to be held against what one process made
of the whole batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..drift.wholes import block_of, entries_of
from ..errors import JournalError
from ..records.sketch_record import Shard
from ..runs.journal import Array, TensorEntry
from ..runs.mapped_tensors import TensorFile
from ..runs.recorded_run import RecordedRun, ranks_of
from ..runs.step_outcomes import read_outcome
from .evidence import PairEvidence


def outcome_against(evidence: PairEvidence, run: RecordedRun, step: int) -> TensorFile:
    """What a step of a run of the other mode gave, to be held against the reference's. Raises JournalError."""
    if not evidence.one_against_several:
        return read_outcome(run.path, step)
    ranks = ranks_of(run)
    files = [read_outcome(one.path, step) for one in ranks]
    entries = [entries_of(rank) for rank in ranks]
    found: dict[str, Array] = {}
    for name, own in files[0].tensors.items():
        parts = [one.tensors[name] for one in files if name in one.tensors]
        if len(parts) < len(files):
            raise JournalError(name, "is in the outcomes of some ranks only")  # type: ignore[arg-type]
        shards = [_shard(name, one, part) for one, part in zip(entries, parts, strict=True)]
        if name.startswith("loss "):  # each rank's is the mean over its part of the batch, and the parts are equal
            found[name] = np.mean([one.astype(np.float64) for one in parts], axis=0).astype(own.dtype)
        elif shards[0] is None:  # copies, of which rank 0's is taken
            found[name] = own
        else:
            found[name] = np.zeros(shards[0].whole, own.dtype)
            for part, shard in zip(parts, shards, strict=True):
                if shard is not None and shard.offset is not None:
                    found[name][block_of(shard, part.shape)] = part
    return TensorFile(found, files[0].dtypes, files[0].facts)


def _shard(key: str, entries: Mapping[str, TensorEntry], part: Array) -> Shard | None:
    """Where a rank's part of a value lies: that of the parameter whose it is, if it has its shape."""
    kind, _, name = key.partition(" ")
    name = name.partition(" ")[2] if kind == "gradient" else name
    owner = entries.get(name)
    if owner is None and kind == "state":
        owner = max(
            (one for one in entries.values() if name.startswith(f"{one.name}.")),
            key=lambda one: len(one.name),
            default=None,
        )
    return owner.shard if owner is not None and owner.shape == part.shape else None

"""What a step of a run of several processes gave as a whole: to be held against what one process made of the
whole batch.

The loss is the mean of the ranks', a sharded tensor is put together from its parts, and of copies rank 0's
is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..drift.wholes import block_of
from ..errors import JournalError
from ..records.shard_record import Shard
from ..runs.journal import Array, TensorEntry
from ..runs.mapped_tensors import TensorFile
from ..runs.recorded_run import RecordedRun, ranks_of
from ..runs.step_outcomes import read_outcome
from .evidence import PairEvidence


def outcome_against(evidence: PairEvidence, run: RecordedRun, step: int) -> TensorFile:
    """What a step of a run of the other mode gave, to be held against the reference's: the whole of it where
    only the other mode has several processes. Raises JournalError."""
    if not holds_one_against_several(evidence):
        return read_outcome(run.path, step)
    ranks = ranks_of(run)
    return _together([read_outcome(one.path, step) for one in ranks], [_entries(one) for one in ranks])


def holds_one_against_several(evidence: PairEvidence) -> bool:
    """Whether the reference is one process and the other run has several."""
    return evidence.a.manifest.world_size == 1 and evidence.b.manifest.world_size > 1


def _together(files: Sequence[TensorFile], entries: Sequence[Mapping[str, TensorEntry]]) -> TensorFile:
    first = files[0]
    found: dict[str, Array] = {}
    for name, own in first.tensors.items():
        parts = [one.tensors.get(name) for one in files]
        there = [one for one in parts if one is not None]
        if len(there) < len(parts):
            raise JournalError(name, "is in the outcomes of some ranks only")  # type: ignore[arg-type]
        shards = [_shard(name, one, part) for one, part in zip(entries, there, strict=True)]
        if name.startswith("loss "):
            found[name] = np.mean([one.astype(np.float64) for one in there], axis=0).astype(own.dtype)
        elif shards[0] is None:
            found[name] = own
        else:
            found[name] = _joined(there, shards)
    return TensorFile(found, first.dtypes, first.facts)


def _joined(parts: Sequence[Array], shards: Sequence[Shard | None]) -> Array:
    assert shards[0] is not None
    whole = np.zeros(shards[0].whole, parts[0].dtype)
    for part, shard in zip(parts, shards, strict=True):
        if shard is not None and shard.offset is not None:
            whole[block_of(shard, part.shape)] = part
    return whole


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


def _entries(run: RecordedRun) -> dict[str, TensorEntry]:
    return {one.name: one for table in run.journal.tables.values() for one in table}

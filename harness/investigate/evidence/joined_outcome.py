"""The outcome of a whole step, joined from the ranks of the other mode, if the reference is one process that takes the
whole batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...drift.wholes import block_of, entries_of
from ...errors import JournalError
from ...records.values.sketch_record import Shard
from ...runs.journal import TensorEntry
from ...runs.mapped_tensors import TensorFile
from ...runs.numpy_values import Array
from ...runs.recorded_run import RecordedRun, ranks_of
from ...runs.step_outcomes import read_outcome
from .pair_evidence import PairEvidence


def outcome_against(evidence: PairEvidence, run: RecordedRun, step: int) -> TensorFile:
    """Return a step's outcome in a run of the other mode, joined so that it can be compared with the reference's.
    Raises JournalError."""
    if not evidence.one_against_several:
        return read_outcome(run.path, step)
    ranks = ranks_of(run)
    files = [read_outcome(rank.path, step) for rank in ranks]
    entries = [entries_of(rank) for rank in ranks]
    joined: dict[str, Array] = {}
    for name, own in files[0].tensors.items():
        parts = [file.tensors[name] for file in files if name in file.tensors]
        if len(parts) < len(files):
            raise JournalError(run.path, f"some ranks have no {name} in the outcome of step {step}")
        shards = [_shard(name, rank_entries, part) for rank_entries, part in zip(entries, parts, strict=True)]
        if name.startswith("loss "):  # each rank's loss is the mean over its part of the batch, and the parts are equal
            joined[name] = np.mean([loss.astype(np.float64) for loss in parts], axis=0).astype(own.dtype)
        elif shards[0] is None:  # all ranks have copies; take rank 0's
            joined[name] = own
        else:
            joined[name] = np.zeros(shards[0].whole, own.dtype)
            for part, shard in zip(parts, shards, strict=True):
                if shard is not None and shard.offset is not None:
                    joined[name][block_of(shard, part.shape)] = part
    return TensorFile(joined, files[0].dtypes, files[0].facts)


def _shard(key: str, entries: Mapping[str, TensorEntry], part: Array) -> Shard | None:
    """Return the shard of a rank's part of a value: that of the value's parameter if the part has the parameter's
    shape, else None."""
    kind, _, name = key.partition(" ")
    name = name.partition(" ")[2] if kind == "gradient" else name
    owner = entries.get(name)
    if owner is None and kind == "state":
        owner = max(
            (entry for entry in entries.values() if name.startswith(f"{entry.name}.")),
            key=lambda entry: len(entry.name),
            default=None,
        )
    return owner.shard if owner is not None and owner.shape == part.shape else None

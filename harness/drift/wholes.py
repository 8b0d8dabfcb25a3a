"""The tensors of a step, joined from the parts that the ranks of a run recorded.

Counts, sums of squares and sketches add up; minima and maxima are taken over all parts. Of several copies of a part,
only one counts. The hashes of parts cannot be joined, so only parts can be compared bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..records.values.digest_record import Digest
from ..records.values.sketch_record import Shard, Sketch, added
from ..runs.journal import TensorEntry
from ..runs.mapped_tensors import StepSketches, sketches_of
from ..runs.numpy_values import Array
from ..runs.recorded_run import RecordedRun
from ..runs.step_digests import StepDigests

What = Literal["gradient", "value"]


@dataclass(frozen=True, slots=True)
class WholeDigest:
    """A tensor described by its parts.

    The statistics are those of the finite elements. They are None if they cannot be added up, as for a sum that is
    spread over ranks. The sketch is None if none was recorded.
    """

    numel: int
    nan: int | None
    inf: int | None
    minimum: float | None
    maximum: float | None
    l2: float | None
    sketch: Sketch | None


WholeStep = Mapping[tuple[What, str], WholeDigest]


def whole_steps(ranks: Sequence[RecordedRun]) -> Iterator[tuple[int, WholeStep]]:
    """Yield the tensors of each step for which every rank has digests, gradients first."""
    entries = [entries_of(run) for run in ranks]
    # The gradients that are placed differently from their parameters
    spread = [{event["tensor"] for event in run.journal.events("gradient-shard")} for run in ranks]
    digests = [dict(run.journal.digests()) for run in ranks]
    sketches = [dict(sketches_of(run)) for run in ranks]
    for step in sorted(set.intersection(*(set(of_rank) for of_rank in digests))):
        wholes: dict[tuple[What, str], WholeDigest] = {}
        of_step = [of_rank[step] for of_rank in digests]
        beside = [of_rank.get(step) for of_rank in sketches]
        for what in ("gradient", "value"):
            for name in _group(of_step[0], what):
                parts = [_group(rank_digests, what).get(name) for rank_digests in of_step]
                shards = [_shard(entries[rank], spread[rank], what, name) for rank in range(len(ranks))]
                readable = [part for part in parts if part is not None and part.readable]
                if len(readable) < len(parts):
                    continue
                whole = _whole(readable, shards, _sketch(beside, what, name, shards))
                if whole is not None:
                    wholes[what, name] = whole
        yield step, wholes


def whole_values(ranks: Sequence[RecordedRun], step: int) -> tuple[dict[str, Array], dict[str, list[Shard | None]]]:
    """Join the kept values of a step from the ranks' parts; return the values and the place of each rank's part.

    Values that cannot be joined are left out. Raises KeyError if a rank has not kept the values of the step.
    """
    values = [run.journal.values(step) for run in ranks]
    entries = [entries_of(run) for run in ranks]
    wholes, places = {}, {}
    for name, first in values[0].items():
        shards = [of_rank[name].shard if name in of_rank else None for of_rank in entries]
        if any(name not in of_rank for of_rank in values) or not all(_is_block(shard) for shard in shards):
            continue
        places[name] = shards
        if shards[0] is None:
            wholes[name] = first
            continue
        whole = np.zeros(shards[0].whole, first.dtype)
        for part, shard in zip((of_rank[name] for of_rank in values), shards, strict=True):
            if shard is not None:
                whole[block_of(shard, part.shape)] = part
        wholes[name] = whole
    return wholes, places


def block_of(shard: Shard, shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the place of a part of this shape in the whole tensor."""
    assert shard.offset is not None
    return tuple(slice(first, first + size) for first, size in zip(shard.offset, shape, strict=True))


def _is_block(shard: Shard | None) -> bool:
    return shard is None or (
        shard.offset is not None and not any(word.startswith("partial") for word in shard.placements)
    )


def entries_of(run: RecordedRun) -> dict[str, TensorEntry]:
    """Return the record of each tensor.

    A new table is written when the script adds or drops tensors. The last record of a tensor counts.
    """
    return {entry.name: entry for table in run.journal.tables.values() for entry in table}


def _group(step: StepDigests, what: str) -> Mapping[str, Digest | None]:
    return step.gradients if what == "gradient" else step.values


def _shard(
    entries: Mapping[str, TensorEntry], spread: set[str], what: str, name: str
) -> Shard | Literal["spread"] | None:
    if what == "gradient" and name in spread:
        return "spread"
    return entries[name].shard if name in entries else None


def _sketch(
    steps: Sequence[StepSketches | None], what: str, name: str, shards: Sequence[Shard | str | None]
) -> Sketch | None:
    sketches: list[Sketch] = []
    for rank, step in enumerate(steps):
        if shards[rank] is None and rank:
            continue  # a copy; for a sharded tensor, every rank recorded its own share
        group = None if step is None else step.gradients if what == "gradient" else step.values
        sketch = None if group is None else group.get(name)
        if sketch is None:
            return None
        sketches.append(sketch)
    return added(sketches)


def _whole(parts: Sequence[Digest], shards: Sequence[Shard | str | None], sketch: Sketch | None) -> WholeDigest | None:
    spread = any(shard == "spread" or (isinstance(shard, Shard) and not _is_block(shard)) for shard in shards)
    # The ranks whose parts make up the whole tensor; for copies outside of any device mesh, only rank 0
    counting = [
        rank
        for rank, shard in enumerate(shards)
        if (rank == 0 if shard is None else isinstance(shard, Shard) and shard.adds)
    ]
    if spread or not counting:
        shard = next((candidate for candidate in shards if isinstance(candidate, Shard)), None)
        numel = math.prod(shard.whole) if shard is not None else parts[0].numel
        return WholeDigest(numel, None, None, None, None, None, sketch)
    counted = [parts[rank] for rank in counting]
    finite = [part for part in counted if not math.isnan(part.minimum)]
    return WholeDigest(
        sum(part.numel for part in counted),
        sum(part.nan for part in counted),
        sum(part.inf for part in counted),
        min((part.minimum for part in finite), default=None),
        max((part.maximum for part in finite), default=None),
        math.hypot(*(part.l2 for part in counted)),
        sketch,
    )

"""What the ranks of a run recorded of a step, added up to the tensors that they are parts of.

Counts and sums of squares add, minima and maxima are those of the parts, and sketches are linear. Of copies
one counts. No hash is made of several: equal bits can be told of parts only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..records.digest_record import Digest
from ..records.sketch_record import Shard, Sketch, added
from ..runs.journal import Array, StepDigests, TensorEntry
from ..runs.mapped_tensors import StepSketches, sketches_of
from ..runs.recorded_run import RecordedRun

What = Literal["gradient", "value"]


@dataclass(frozen=True, slots=True)
class WholeDigest:
    """A tensor as its parts tell of it: statistics of the finite elements, None where they do not add up (a
    sum that is spread over ranks), and its sketch, None where none was recorded."""

    numel: int
    nan: int | None
    inf: int | None
    minimum: float | None
    maximum: float | None
    l2: float | None
    sketch: Sketch | None


WholeStep = Mapping[tuple[What, str], WholeDigest]


def whole_steps(ranks: Sequence[RecordedRun]) -> Iterator[tuple[int, WholeStep]]:
    """The tensors of each step of which every rank has digests, gradients first."""
    entries = [entries_of(run) for run in ranks]
    # The gradients that are placed otherwise than their parameters
    spread = [{event["tensor"] for event in run.journal.events("gradient-shard")} for run in ranks]
    digests = [dict(run.journal.digests()) for run in ranks]
    sketches = [dict(sketches_of(run)) for run in ranks]
    for step in sorted(set.intersection(*(set(one) for one in digests))):
        found: dict[tuple[What, str], WholeDigest] = {}
        of_step = [one[step] for one in digests]
        beside = [one.get(step) for one in sketches]
        for what in ("gradient", "value"):
            for name in _group(of_step[0], what):
                parts = [_group(one, what).get(name) for one in of_step]
                shards = [_shard(entries[rank], spread[rank], what, name) for rank in range(len(ranks))]
                readable = [one for one in parts if one is not None and one.readable]
                if len(readable) < len(parts):
                    continue
                whole = _whole(readable, shards, _sketch(beside, what, name, shards))
                if whole is not None:
                    found[what, name] = whole
        yield step, found


def whole_values(ranks: Sequence[RecordedRun], step: int) -> tuple[dict[str, Array], dict[str, list[Shard | None]]]:
    """The kept values of a step put together from the ranks' parts, and where each rank's part lies.

    Left out is what cannot be put together. Raises KeyError where a rank has not kept the step.
    """
    values = [run.journal.values(step) for run in ranks]
    entries = [entries_of(run) for run in ranks]
    wholes, places = {}, {}
    for name, first in values[0].items():
        shards = [one[name].shard if name in one else None for one in entries]
        if any(name not in one for one in values) or not all(_is_block(shard) for shard in shards):
            continue
        places[name] = shards
        if shards[0] is None:
            wholes[name] = first
            continue
        whole = np.zeros(shards[0].whole, first.dtype)
        for part, shard in zip((one[name] for one in values), shards, strict=True):
            if shard is not None:
                whole[block_of(shard, part.shape)] = part
        wholes[name] = whole
    return wholes, places


def block_of(shard: Shard, shape: Sequence[int]) -> tuple[slice, ...]:
    """Where a part of this shape lies in the whole."""
    assert shard.offset is not None
    return tuple(slice(first, first + size) for first, size in zip(shard.offset, shape, strict=True))


def _is_block(shard: Shard | None) -> bool:
    return shard is None or (
        shard.offset is not None and not any(word.startswith("partial") for word in shard.placements)
    )


def entries_of(run: RecordedRun) -> dict[str, TensorEntry]:
    """What is recorded of each tensor; a table is written anew when the script adds or drops some, the last counts."""
    return {one.name: one for table in run.journal.tables.values() for one in table}


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
    found: list[Sketch] = []
    for rank, step in enumerate(steps):
        if shards[rank] is None and rank:
            continue  # a copy; of a sharded tensor every rank wrote what it adds
        group = None if step is None else step.gradients if what == "gradient" else step.values
        sketch = None if group is None else group.get(name)
        if sketch is None:
            return None
        found.append(sketch)
    return added(found)


def _whole(parts: Sequence[Digest], shards: Sequence[Shard | str | None], sketch: Sketch | None) -> WholeDigest | None:
    spread = any(shard == "spread" or (isinstance(shard, Shard) and not _is_block(shard)) for shard in shards)
    # The ranks whose parts make the whole: rank 0 of copies that no mesh knows of
    counting = [
        rank
        for rank, shard in enumerate(shards)
        if (rank == 0 if shard is None else isinstance(shard, Shard) and shard.adds)
    ]
    if spread or not counting:
        shard = next((one for one in shards if isinstance(one, Shard)), None)
        numel = math.prod(shard.whole) if shard is not None else parts[0].numel
        return WholeDigest(numel, None, None, None, None, None, sketch)
    there = [parts[rank] for rank in counting]
    finite = [one for one in there if not math.isnan(one.minimum)]
    return WholeDigest(
        sum(one.numel for one in there),
        sum(one.nan for one in there),
        sum(one.inf for one in there),
        min((one.minimum for one in finite), default=None),
        max((one.maximum for one in finite), default=None),
        math.hypot(*(one.l2 for one in there)),
        sketch,
    )

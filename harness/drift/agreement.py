"""The bit-for-bit agreement of a run's ranks on replicated parameters and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..errors import JournalError
from ..runs.journal import TensorEntry
from ..runs.recorded_run import RecordedRun
from .recorded_drift import common_digests, differing_tensors


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The first tensor whose bits differ from those on rank 0.

    `what` is "gradient" or "value". `rank` is the rank that differs from rank 0.
    """

    step: int
    what: str
    tensor: str
    rank: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """The result of comparing every rank with rank 0.

    tensors: the number of parameters of which rank 0 and another rank have copies; the largest over the other ranks
    steps: the number of steps that were compared
    replicated: whether a wrapper (DistributedDataParallel) or the device mesh of the tensors keeps the copies equal. If
        so, a difference is a fault; otherwise the script may intend it.
    """

    agree: bool
    steps: int
    tensors: int
    replicated: bool
    first: Disagreement | None
    text: str


def agreement(ranks: Sequence[RecordedRun]) -> Agreement | None:
    """Compare every rank with rank 0; return None if no recorded tensor has copies on two ranks.

    Gradients are compared before values, since a step computes gradients first. Buffers are left out:
    DistributedDataParallel makes them equal only at the beginning of a step. Shards are compared only if they are the
    same part of a tensor.
    """
    first: Disagreement | None = None
    steps = tensors = 0
    for rank in ranks[1:]:
        names = _copied_parameters(ranks[0], rank)
        compared, disagreement = _compared(ranks[0], rank, names)
        steps, tensors = max(steps, compared), max(tensors, len(names))
        if disagreement is not None and (first is None or disagreement.step < first.step):
            first = disagreement
    if not tensors or not steps:
        return None
    # A wrapper of the models keeps the copies equal, or the mesh on which the tensors are placed does.
    wrapped = [bool(event.get("replicated")) for event in ranks[0].journal.events("adopted")]
    sharded = any(entry.shard is not None for entry in _parameters(ranks[0]).values())
    replicated = sharded or (bool(wrapped) and all(wrapped))
    if first is None:
        several = f"{tensors} parameters and their gradients have"
        text = (
            f"ranks agree: {'1 parameter and its gradient have' if tensors == 1 else several} the same bits on all "
            f"ranks, in {steps:,} step{'s' if steps > 1 else ''}"
        )
    else:
        of = f"the gradient of {first.tensor}" if first.what == "gradient" else first.tensor
        remedy = (
            "every rank has a copy of this tensor, and the copies must stay equal"
            if replicated
            else "if every rank has a copy of this tensor, wrap the model in DistributedDataParallel"
        )
        where = f"between rank 0 and rank {first.rank} from step {first.step} on"
        text = f"ranks do not agree: {of} differs {where}; {remedy}"
    return Agreement(first is None, steps, tensors, replicated, first, text)


def _copied_parameters(a: RecordedRun, b: RecordedRun) -> set[str]:
    """Return the parameters of which both ranks have a copy.

    Copies have the same shape and, if sharded, the same place in the whole tensor.
    """
    left, right = _parameters(a), _parameters(b)
    return {
        name
        for name, entry in left.items()
        if name in right and entry.shape == right[name].shape and _place(entry) == _place(right[name])
    }


def _compared(reference: RecordedRun, rank: RecordedRun, names: set[str]) -> tuple[int, Disagreement | None]:
    """Compare steps up to the first disagreement. Return the number of compared steps, and the disagreement."""
    compared = 0
    with suppress(JournalError):
        for step, reference_digests, digests in common_digests(reference.journal, rank.journal):
            compared += 1
            for what, name in differing_tensors(reference_digests, digests):
                if name in names:
                    return compared, Disagreement(step, what, name, rank.manifest.rank)
    return compared, None


def _place(entry: TensorEntry) -> tuple[object, ...] | None:
    """Return the place of a shard in its whole tensor.

    The parts of a sum that is spread over ranks are not copies of each other, so each part gets a place of its own.
    """
    shard = entry.shard
    if shard is None:
        return None
    spread = any(word.startswith(("partial", "other")) for word in shard.placements)
    return (shard.whole, shard.offset, shard.at if spread else ())


def _parameters(run: RecordedRun) -> dict[str, TensorEntry]:
    # The last entry of a name is not enough: a layer that the script freezes during the training is recorded as a
    # parameter before that, and as a buffer afterwards.
    return {entry.name: entry for table in run.journal.tables.values() for entry in table if entry.kind == "parameter"}

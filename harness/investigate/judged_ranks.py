"""A pair of runs of several processes: each rank held against the same rank, the pair judged by the worst of
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import NumdriftError
from ..records.findings import PairFindings
from ..runs.recorded_run import RecordedRun
from .evidence import PairEvidence

Judge = Callable[[PairEvidence], PairFindings]

GRAVITY = (
    "failed",
    "nondeterministic",
    "different-setup",
    "nonfinite",
    "beyond-rounding",
    None,
    "rounding",
    "identical",
)
"""Verdicts, the worst first; None is an undecided pair."""


def judged_by_rank(evidence: PairEvidence, judge: Judge) -> PairFindings:
    """Judge a pair, rank by rank where both runs have as many processes."""
    a, b = evidence.a, evidence.b
    count = a.manifest.world_size
    alone = count == 1 or b.manifest.world_size != count or a.manifest.rank or b.manifest.rank
    if alone:
        return judge(evidence)
    if any(run.manifest.failed and run.manifest.status != "nonfinite" for run in (a, b)):
        return _with_agreement(judge(evidence), a, b)
    try:
        found = [judge(evidence.of_rank(rank)) for rank in range(count)]
    except NumdriftError as error:
        first = judge(evidence)
        return replace(first, notes=[*first.notes, f"only rank 0 was held against rank 0: {error}"])
    worst = min(range(count), key=lambda rank: _gravity(found[rank]))
    words = [_word(one) for one in found]
    said = f"each of {count} ranks is held against the same rank: " + (
        f"all are {words[0]}, and this is rank {worst}"
        if len(set(words)) == 1
        else ", ".join(f"rank {rank} is {word}" for rank, word in enumerate(words))
        + f"; this is rank {worst}, the worst"
    )
    pair = found[worst]
    pair = replace(
        pair,
        text=[*pair.text[:1], said, *pair.text[1:]],
        ranks=[_described(rank, one) for rank, one in enumerate(found)],
        notes=list(dict.fromkeys([*pair.notes, *(note for one in found for note in one.notes)])),
    )
    return _with_agreement(pair, a, b)


def _gravity(found: PairFindings) -> tuple[int, float]:
    return (GRAVITY.index(found.verdict), -(found.score or 0.0))


def _word(found: PairFindings) -> str:
    return found.verdict or "undecided"


def _described(rank: int, found: PairFindings) -> Mapping[str, Any]:
    return {
        "rank": rank,
        "verdict": found.verdict,
        "text": found.text[0] if found.text else "",
        "score": found.score,
        "first_differing_step": found.first_differing_step,
        "first_significant_step": found.first_significant_step,
    }


def _with_agreement(found: PairFindings, a: RecordedRun, b: RecordedRun) -> PairFindings:
    """Add whether the ranks of each run hold the same parameters."""
    agreements = {run.manifest.label: run.manifest.agreement for run in (a, b) if run.manifest.agreement is not None}
    notes = [f"{label}: {one['text']}" for label, one in agreements.items()]
    return replace(found, agreement=agreements, notes=[*found.notes, *notes])

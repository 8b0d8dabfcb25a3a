"""A pair of runs of several processes: each rank held against the same rank, the pair judged by the worst of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..errors import NumdriftError
from ..records.findings import PairFindings, RankFindings
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
    # of equally bad verdicts the larger score, and of equal ones the first rank
    worst = min(range(count), key=lambda rank: (GRAVITY.index(found[rank].verdict), -(found[rank].score or 0.0)))
    words = [one.verdict or "undecided" for one in found]
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
        ranks=[
            RankFindings(
                rank,
                one.verdict,
                one.text[0] if one.text else "",
                one.score,
                one.first_differing_step,
                one.first_significant_step,
            )
            for rank, one in enumerate(found)
        ],
        notes=list(dict.fromkeys([*pair.notes, *(note for one in found for note in one.notes)])),
    )
    return _with_agreement(pair, a, b)


def _with_agreement(found: PairFindings, a: RecordedRun, b: RecordedRun) -> PairFindings:
    """Add whether the ranks of each run hold the same parameters."""
    agreements = {run.manifest.label: run.manifest.agreement for run in (a, b) if run.manifest.agreement is not None}
    notes = [f"{label}: {one['text']}" for label, one in agreements.items()]
    return replace(found, agreement=agreements, notes=[*found.notes, *notes])

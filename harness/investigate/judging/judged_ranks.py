"""The judgement of a pair of runs of several processes.

Each rank is compared with the same rank of the other run, and the worst pair of ranks decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...errors import NumdriftError
from ...records.results.findings import PairFindings, RankFindings
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_evidence import PairEvidence

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
"""Verdicts, the worst first; None is the verdict of an undecided pair."""


def judged_by_rank(evidence: PairEvidence, judge: Judge) -> PairFindings:
    """Judge a pair, rank by rank if both runs have the same number of processes."""
    a, b = evidence.a, evidence.b
    count = a.manifest.world_size
    alone = count == 1 or b.manifest.world_size != count or a.manifest.rank or b.manifest.rank
    if alone:
        return judge(evidence)
    if any(run.manifest.failed and run.manifest.status != "nonfinite" for run in (a, b)):
        return _with_agreement(judge(evidence), a, b)
    try:
        rank_pairs = [judge(evidence.of_rank(rank)) for rank in range(count)]
    except NumdriftError as error:
        first = judge(evidence)
        return replace(first, notes=[*first.notes, f"only rank 0 was compared: {error}"])
    # Of equally bad verdicts, take the larger score; of equal scores, the first rank.
    worst = min(
        range(count), key=lambda rank: (GRAVITY.index(rank_pairs[rank].verdict), -(rank_pairs[rank].score or 0.0))
    )
    words = [rank_pair.verdict or "undecided" for rank_pair in rank_pairs]
    sentence = f"each of the {count} ranks is compared with the same rank of the reference: " + (
        f"all are {words[0]}; the findings below are those of rank {worst}"
        if len(set(words)) == 1
        else ", ".join(f"rank {rank} is {word}" for rank, word in enumerate(words))
        + f"; the findings below are those of rank {worst}, the worst"
    )
    pair = rank_pairs[worst]
    pair = replace(
        pair,
        text=[*pair.text[:1], sentence, *pair.text[1:]],
        ranks=[
            RankFindings(
                rank,
                rank_pair.verdict,
                rank_pair.text[0] if rank_pair.text else "",
                rank_pair.score,
                rank_pair.first_differing_step,
                rank_pair.first_significant_step,
            )
            for rank, rank_pair in enumerate(rank_pairs)
        ],
        notes=list(dict.fromkeys([*pair.notes, *(note for rank_pair in rank_pairs for note in rank_pair.notes)])),
    )
    return _with_agreement(pair, a, b)


def _with_agreement(pair: PairFindings, a: RecordedRun, b: RecordedRun) -> PairFindings:
    """Add notes about whether the ranks of each run have the same parameters."""
    agreements = {run.manifest.label: run.manifest.agreement for run in (a, b) if run.manifest.agreement is not None}
    notes = [f"{label}: {agreement['text']}" for label, agreement in agreements.items()]
    return replace(pair, agreement=agreements, notes=[*pair.notes, *notes])

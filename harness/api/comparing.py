"""`numdrift.compare`: the distances between recorded runs, and their verdict if one is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..drift.global_batch import GlobalBatchComparison, compare_global_batch
from ..drift.run_comparison import RunComparison, compare_runs
from ..errors import UsageError
from ..investigate.judging.judge import judge_pairs
from ..records.results.findings import Findings
from ..runs.recorded_run import (
    RecordedRun,
    find_investigation,
    load_run,
    ranks_of,
    runs_with_suffixes,
    with_distinct_labels,
)
from ..runs.run_layout import MANIFEST
from .api_recording import Recording
from .api_running import loaded
from .investigation_results import Comparison, investigation_of

ReferenceAndRun = tuple[RecordedRun, RecordedRun]
"""A reference, and the run that is compared with it."""


def compare(a: RecordedRun | Recording | Path | str, b: RecordedRun | Recording | Path | str) -> Comparison:
    """Compare run b with run a, the reference, as `numdrift compare` does, but write nothing.

        compared = numdrift.compare("runs/study/cpu", "runs/study/compile")
        compared.verdict, compared.losses(), compared.parameters()

    The verdict comes from the records; it is None if experiments of `numdrift.investigate` are missing. Raises
    UsageError for a run without a recorded step, and RunNotFound or JournalError for a run that cannot be read.
    """
    reference, run = with_distinct_labels(loaded(a), loaded(b))
    distances = compare_runs(reference, run)
    findings = investigation_of(judge_pairs([(reference, run)]).to_json(), reference.path.parent, ())
    return Comparison(reference, run, distances, findings.pairs[0])


def compared(pairs: Sequence[ReferenceAndRun]) -> tuple[list[RunComparison], Findings]:
    """Return the distances of these pairs, and the findings on them.

    Runs with the same number of processes are compared rank by rank. Raises UsageError if no pair has steps on both
    sides.
    """
    distances = []
    for a, b in pairs:
        count = a.manifest.world_size
        if not (a.journal.steps and b.journal.steps):
            continue
        if count == 1 or b.manifest.world_size != count:  # with different world sizes, ranks have no counterparts
            distances.append(compare_runs(a, b))
            continue
        for rank, (rank_a, rank_b) in enumerate(zip(ranks_of(a), ranks_of(b), strict=True)):
            comparison = compare_runs(rank_a, rank_b)
            distances.append(replace(comparison, a=f"{comparison.a} rank {rank}", b=f"{comparison.b} rank {rank}"))
    if not distances:
        for a, b in pairs:
            compare_runs(a, b)  # raises, naming the run without a step and the reason
    return distances, judge_pairs(pairs)


def pairs_to_compare(paths: Sequence[str], suffixes: Sequence[str], out: Path) -> list[ReferenceAndRun]:
    """Return the two named runs, or pair each run of an investigation (default: the newest) with its batch's first run.

    If every batch has a single run, each later run is paired with the run of the first batch. Raises UsageError and
    RunNotFound.
    """
    if len(paths) > 2:
        raise UsageError("compare takes two runs or one investigation")
    if len(paths) == 2:
        if suffixes:
            raise UsageError("--suffix applies to an investigation, not to two runs")
        return [with_distinct_labels(load_run(Path(paths[0])), load_run(Path(paths[1])))]
    named = paths[0] if paths else None
    if named is not None and (Path(named) / MANIFEST).exists():
        raise UsageError(f"{named} is one run; name a second one, or the investigation {Path(named).parent}")
    folder = find_investigation(out, named, suffixes=suffixes)
    batches: dict[str, list[RecordedRun]] = {}
    for run in runs_with_suffixes(folder, suffixes):
        batches.setdefault(run.manifest.suffix, []).append(run)
    pairs = [(runs[0], later) for runs in batches.values() for later in runs[1:]]
    firsts = [runs[0] for runs in batches.values()]
    pairs = pairs or [(firsts[0], later) for later in firsts[1:]]
    if not pairs:
        raise UsageError(f"{folder} has only one run, so there is nothing to compare; run another mode")
    return pairs


def compared_whole(paths: Sequence[str]) -> tuple[ReferenceAndRun, GlobalBatchComparison]:
    """Compare a run of one process with a run of several processes that share one global batch.

    Return both runs and their distances. Raises UsageError.
    """
    if len(paths) != 2:
        raise UsageError("--global-batch takes two runs: one with a single process, and one with several")
    single, several = (load_run(Path(path)) for path in paths)
    if single.manifest.world_size != 1 or several.manifest.world_size < 2:
        raise UsageError(
            "--global-batch takes a run with one process and a run with several, in this order; number of processes: "
            f"{single.path} {single.manifest.world_size}, {several.path} {several.manifest.world_size}"
        )
    return (single, several), compare_global_batch(single, ranks_of(several))

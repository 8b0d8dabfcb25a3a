"""`numdrift compare --global-batch`: a run of several processes against one that takes the whole batch by itself."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ..drift.global_batch import GlobalBatchComparison, TensorDistance, compare_global_batch
from ..errors import UsageError
from ..runs.recorded_run import load_run, ranks_of
from .output import number, table

RUN_FAILED = 3
UNDECIDED = 1


def compare(paths: tuple[str, ...]) -> GlobalBatchComparison:
    """Compare two runs, in the order given: one of a single process, one of several. Raises UsageError."""
    if len(paths) != 2:
        raise UsageError("--global-batch takes two runs: one of a single process, and one of several")
    single, several = (load_run(Path(path)) for path in paths)
    if single.manifest.world_size != 1 or several.manifest.world_size < 2:
        raise UsageError(
            f"--global-batch takes a run of one process and one of several, in this order; {single.path} has "
            f"{single.manifest.world_size}, {several.path} has {several.manifest.world_size}"
        )
    return compare_global_batch(single, ranks_of(several))


def exit_code(paths: tuple[str, ...]) -> int:
    """Distances decide nothing: 1 for a person to look, 3 where a run failed."""
    failed = [run for run in (load_run(Path(path)) for path in paths) if run.manifest.failed]
    return RUN_FAILED if any(run.manifest.status != "nonfinite" for run in failed) else UNDECIDED


def show(out: Console, found: GlobalBatchComparison, top: int) -> None:
    losses = found.losses
    out.print(
        f"{found.several}, {found.world_size} processes, against {found.single}, which takes the whole batch",
        soft_wrap=True,
    )
    if losses.common_steps:
        out.print(
            f"  the mean of the ranks' losses differs by at most {number(losses.max_relative)} of the loss (step "
            f"{losses.max_relative_step}), in {losses.common_steps:,} steps",
            soft_wrap=True,
        )
    if found.jump is not None:
        at = found.jump.at
        out.print(
            f"  the distance grows the most at step {at.step}, from {number(found.jump.before)} to "
            f"{number(at.relative_l2)}: {_named(at)}",
            soft_wrap=True,
        )
    if found.final:
        out.print(f"\nafter step {found.final[0].step:,}")
        rows = table("  tensor", ">relative L2", "from", ">farthest rank")
        for one in found.final[: top or None]:
            rank = "-" if one.rank is None else str(one.rank)
            rows.add_row(f"  {_name(one)}", number(one.relative_l2), one.how, rank)
        out.print(rows)
    for text in found.lacking:
        out.print(f"  note: {text}", soft_wrap=True)
    out.print("These are distances, not a verdict: sums over the batch are in another order.")


def _named(one: TensorDistance) -> str:
    part = "" if one.rank is None else f", most in the part of rank {one.rank}"
    return f"{_name(one)}{part} ({one.how})"


def _name(one: TensorDistance) -> str:
    return f"{one.tensor} (gradient)" if one.what == "gradient" else one.tensor

"""`numdrift compare`: how far runs are apart, and what that means as far as it is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..drift.run_comparison import RunComparison, compare_runs
from ..errors import UsageError
from ..investigate.judge import judge_pairs
from ..records.codec import plain
from ..runs.recorded_run import (
    RecordedRun,
    find_investigation,
    load_run,
    ranks_of,
    runs_with_suffixes,
    told_apart,
)
from ..runs.run_layout import MANIFEST
from . import global_batch_table as whole_batch
from .command_options import force_option, json_option, out_option
from .findings_table import show_pair
from .output import console, number, table, write_json

EXAMPLES = """\b
Examples:
  numdrift compare runs/sam_tanh
  numdrift compare runs/sam_tanh --suffix main
  numdrift compare runs/sam_tanh/cpu_main runs/sam_tanh/compile_main --json -
  numdrift compare runs/one/cpu runs/two/cpu --global-batch

\b
The first run is the reference. A relative difference is |a - b| / |a|; ULP counts the representable numbers
between two values; relative L2 is ||a - b|| / ||a||. Nothing is run: the verdict comes from what is recorded,
so it is undecided where the experiments of `numdrift investigate` are missing. It is written to the
investigation.json of the investigation that both runs are in.
Exit codes: 0 identical or rounding, 1 beyond rounding, undecided or another verdict that needs a person,
2 wrong usage, 3 one of the runs failed.
"""


@click.command(
    epilog=EXAMPLES, help="Compare two runs, or every run of an investigation with its batch's first."
)
@click.argument("paths", nargs=-1, metavar="[RUN_A RUN_B | INVESTIGATION]")
@click.option("--suffix", "suffixes", multiple=True, metavar="TAG", help="Only this batch; may be repeated.")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Parameters shown a pair (0: all).",
)
@click.option(
    "--global-batch",
    is_flag=True,
    help="Hold RUN_B, of several processes, against RUN_A, of one process that takes the whole batch at each step.",
)
@out_option
@force_option
@json_option
def command(
    paths: tuple[str, ...],
    suffixes: tuple[str, ...],
    top: int,
    global_batch: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    if global_batch:
        return _global_batch(paths, top, force, json_path)
    pairs = _pairs(paths, suffixes, out)
    compared = [one for a, b in pairs if a.journal.steps and b.journal.steps for one in _compared(a, b)] or [
        compare_runs(a, b) for a, b in pairs
    ]
    found = judge_pairs(pairs)
    distances = {"distances": [one.to_json() for one in compared]}
    if json_path:
        write_json(json_path, found.to_json() | distances, force=force)
    if json_path != "-":
        show(console(), compared, top)
        for a, b in pairs:
            for run in (a, b):
                if not run.journal.steps:
                    console().print(f"{run.manifest.label} has no recorded step: {run.manifest.message}")
        for pair in found.pairs:
            show_pair(console(), pair)
    for folder in {a.path.parent for a, b in pairs if a.path.parent == b.path.parent}:
        found.update(folder)
    failed = any(run.manifest.failed and run.manifest.status != "nonfinite" for pair in pairs for run in pair)
    return 3 if failed else found.exit_code


def _global_batch(paths: tuple[str, ...], top: int, force: bool, json_path: str | None) -> int:
    found = whole_batch.compare(paths)
    if json_path:
        content = {"schema": 1, "global_batch": plain(found.to_json())}
        write_json(json_path, content, force=force)
    if json_path != "-":
        whole_batch.show(console(), found, top)
    return whole_batch.exit_code(paths)


def _compared(a: RecordedRun, b: RecordedRun) -> list[RunComparison]:
    """The distances of two runs, rank by rank where both have as many processes."""
    count = a.manifest.world_size
    if count == 1 or b.manifest.world_size != count:
        return [compare_runs(a, b)]
    found = [compare_runs(one, other) for one, other in zip(ranks_of(a), ranks_of(b), strict=True)]
    return [
        replace(one, a=f"{one.a} rank {rank}", b=f"{one.b} rank {rank}") for rank, one in enumerate(found)
    ]


def _pairs(
    paths: tuple[str, ...], suffixes: tuple[str, ...], out: Path
) -> list[tuple[RecordedRun, RecordedRun]]:
    if len(paths) > 2:
        raise UsageError("compare takes two runs or one investigation")
    if len(paths) == 2:
        if suffixes:
            raise UsageError("--suffix belongs to an investigation, not to two runs")
        return [told_apart(load_run(Path(paths[0])), load_run(Path(paths[1])))]
    named = paths[0] if paths else None
    if named is not None and (Path(named) / MANIFEST).exists():
        raise UsageError(f"{named} is one run; give a second one, or the investigation {Path(named).parent}")
    folder = find_investigation(out, named, suffixes=suffixes)
    batches: dict[str, list[RecordedRun]] = {}
    for run in runs_with_suffixes(folder, suffixes):
        batches.setdefault(run.manifest.suffix, []).append(run)
    pairs = [(runs[0], other) for runs in batches.values() for other in runs[1:]]
    firsts = [runs[0] for runs in batches.values()]
    if not pairs:
        pairs = [(firsts[0], other) for other in firsts[1:]]
    if not pairs:
        raise UsageError(f"{folder} holds one run, which has nothing to be compared with; run another mode")
    return pairs


def show(out: Console, compared: list[RunComparison], top: int) -> None:
    """Print a table of the pairs, then the parameters of each pair that differs."""
    rows = table(
        "reference",
        "run",
        ">steps",
        ">first differing step",
        ">max |Δloss|",
        ">max rel",
        ">final |Δloss|",
        ">final rel",
        "first differing tensor",
    )
    for one in compared:
        losses = one.losses
        rows.add_row(
            one.a,
            one.b,
            f"{losses.common_steps:,}",
            "none" if losses.first_differing_step is None else f"{losses.first_differing_step:,}",
            number(losses.max_absolute),
            number(losses.max_relative),
            number(losses.final_absolute),
            number(losses.final_relative),
            _tensor(one),
        )
    out.print(rows)
    for one in compared:
        _show_parameters(out, one, top)


def _tensor(one: RunComparison) -> str:
    if one.first_tensor is None:
        return "none" if one.digest_steps else "not recorded"
    first = one.first_tensor
    return f"{first.tensor}{' (gradient)' if first.what == 'gradient' else ''} at step {first.step:,}"


def _show_parameters(out: Console, one: RunComparison, top: int) -> None:
    if one.parameters is None:
        return
    differing = [drift for drift in one.parameters.drifts if drift.differing]
    count = len(one.parameters.drifts)
    head = f"\n{one.b} against {one.a}, after step {one.parameters_step:,}: "
    if not differing:
        out.print(f"{head}all {count} parameters and buffers are identical bit for bit")
    else:
        out.print(f"{head}{len(differing)} of {count} parameters and buffers differ")
        rows = table("  name", "shape", "dtype", ">max ULP", ">relative L2", ">max |Δ|", ">elements")
        for drift in differing[: top or None]:
            rows.add_row(
                f"  {drift.name}",
                "x".join(map(str, drift.shape)) or "scalar",
                drift.dtype,
                "-" if drift.max_ulp is None else f"{drift.max_ulp:,}",
                number(drift.relative_l2),
                number(drift.max_absolute),
                f"{drift.differing:,} of {drift.numel:,}",
            )
        out.print(rows)
        if top and len(differing) > top:
            out.print(f"  and {len(differing) - top} more (--top 0 shows all)")
    _show_unmatched(out, one)


def _show_unmatched(out: Console, one: RunComparison) -> None:
    parameters: Any = one.parameters
    for side, names in ((one.a, parameters.only_a), (one.b, parameters.only_b)):
        if names:
            out.print(f"  only {side} has {', '.join(names)}", soft_wrap=True)
    for other in parameters.mismatches:
        out.print(
            f"  {other.name} is {other.dtype_a} {list(other.shape_a)} in {one.a}, "
            f"{other.dtype_b} {list(other.shape_b)} in {one.b}",
            soft_wrap=True,
        )

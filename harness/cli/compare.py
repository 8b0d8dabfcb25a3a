"""`numdrift compare`: shows the distances between runs, and the verdict that follows from what is recorded."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from ..api.comparing import compared as compare_pairs
from ..api.comparing import compared_whole, pairs_to_compare
from ..drift.global_batch import GlobalBatchComparison, TensorDistance
from ..drift.parameter_distance import ParameterComparison
from ..drift.run_comparison import RunComparison
from ..records.codec import plain
from ..runs.recorded_run import RecordedRun
from .command_options import force_option, json_option, out_option
from .investigate import frames_option, show_answers, show_pair, suspects_option
from .output import console, number, table, write_json

EXAMPLES = """\b
Examples:
  numdrift compare runs/sam_tanh
  numdrift compare runs/sam_tanh --suffix main
  numdrift compare runs/sam_tanh/cpu_main runs/sam_tanh/compile_main --json -
  numdrift compare runs/one/cpu runs/two/cpu --global-batch

\b
The first run is the reference. A relative difference is |a - b| / |a|; ULP counts the representable numbers
between two values; relative L2 is ||a - b|| / ||a||. The command runs no script. The verdict is based on recorded
data, so it is undecided if the experiments of `numdrift investigate` are missing. If both runs are in the same
investigation, the verdict is also written to its investigation.json.
Exit codes: 0 identical or rounding, 1 beyond rounding, undecided or another verdict that needs attention,
2 wrong usage, 3 one of the runs failed.
"""


@click.command(
    epilog=EXAMPLES, help="Compare two runs, or each run of an investigation with the first run of its batch."
)
@click.argument("paths", nargs=-1, metavar="[RUN_A RUN_B | INVESTIGATION]")
@click.option("--suffix", "suffixes", multiple=True, metavar="TAG", help="Compare only this batch; may be repeated.")
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Number of parameters to show for each pair (0: all).",
)
@click.option(
    "--global-batch",
    is_flag=True,
    help="Compare RUN_B, which has several processes, with RUN_A, whose single process trains on the whole batch at "
    "each step.",
)
@suspects_option
@frames_option
@out_option
@force_option
@json_option
def command(
    paths: tuple[str, ...],
    suffixes: tuple[str, ...],
    top: int,
    global_batch: bool,
    suspects: bool,
    frames: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    if global_batch:
        (single, several), global_comparison = compared_whole(paths)
        if json_path:
            write_json(json_path, {"schema": 1, "global_batch": plain(global_comparison.to_json())}, force=force)
        if json_path != "-":
            _show_global_batch(console(), global_comparison, top)
        # distances are not a verdict: 1 asks a person to look
        return 3 if any(_failed(run) for run in (single, several)) else 1
    pairs = pairs_to_compare(paths, suffixes, out)
    compared, findings = compare_pairs(pairs)
    distances = {"distances": [comparison.to_json() for comparison in compared]}
    if json_path:
        write_json(json_path, findings.to_json() | distances, force=force)
    if json_path != "-":
        show_answers(console(), findings)
        _show(console(), compared, top)
        for a, b in pairs:
            for run in (a, b):
                if not run.journal.steps:
                    console().print(f"{run.manifest.label} has no recorded step: {run.manifest.message}")
        for pair in findings.pairs:
            show_pair(console(), pair, suspects=suspects, frames=frames)
    # a pair of runs from two investigations belongs to neither's findings
    for folder in {a.path.parent for a, b in pairs if a.path.parent == b.path.parent}:
        findings.update(folder)
    return 3 if any(_failed(run) for pair in pairs for run in pair) else findings.exit_code


def _failed(run: RecordedRun) -> bool:
    """Return whether a run failed. A run that ended with a nonfinite loss can be compared, and is no failure."""
    return run.manifest.failed and run.manifest.status != "nonfinite"


def _show(out: Console, compared: list[RunComparison], top: int) -> None:
    """Print a table of the pairs, then the parameters of each pair that differs."""
    rows = table(
        "reference", "run", ">steps", ">first differing step",
        ">max |Δloss|", ">max rel", ">final |Δloss|", ">final rel", "first differing tensor",
    )  # fmt: skip
    for comparison in compared:
        losses, first = comparison.losses, comparison.first_tensor
        if first is None:
            tensor = "none compared" if _nothing_in_common(comparison.parameters) else "none"
            tensor = tensor if comparison.digest_steps else "not recorded"
        else:
            tensor = f"{first.tensor}{' (gradient)' if first.what == 'gradient' else ''} at step {first.step:,}"
        rows.add_row(
            comparison.a,
            comparison.b,
            f"{losses.common_steps:,}",
            "none" if losses.first_differing_step is None else f"{losses.first_differing_step:,}",
            number(losses.max_absolute),
            number(losses.max_relative),
            number(losses.final_absolute),
            number(losses.final_relative),
            tensor,
        )
    out.print(rows)
    for comparison in compared:
        if comparison.parameters is not None:
            _show_parameters(out, comparison, comparison.parameters, top)


def _nothing_in_common(parameters: ParameterComparison | None) -> bool:
    """Return whether both sides have tensors, but no tensor name in common."""
    if parameters is None or parameters.drifts or parameters.mismatches:
        return False
    return bool(parameters.only_a and parameters.only_b)


def _show_parameters(out: Console, comparison: RunComparison, parameters: ParameterComparison, top: int) -> None:
    """Print the distances between the parameters of two runs, and the parameters without a counterpart.

    The parameters are those after the last step for which both runs kept them.
    """
    differing = [drift for drift in parameters.drifts if drift.differing]
    count = len(parameters.drifts)
    head = f"\n{comparison.b} against {comparison.a}, after step {comparison.parameters_step:,}: "
    if _nothing_in_common(parameters):
        out.print(f"{head}no tensor has the same name in both, so none was compared", soft_wrap=True)
    elif not differing:
        out.print(f"{head}all {count} parameters and buffers are identical bit for bit")
    else:
        out.print(f"{head}{len(differing)} of {count} parameters and buffers differ")
        rows = table("  name", "shape", "dtype", ">relative L2", ">max |Δ|", ">in ULP of the largest", ">elements")
        for drift in differing[: top or None]:
            rows.add_row(
                f"  {drift.name}",
                "x".join(map(str, drift.shape)) or "scalar",
                drift.dtype,
                number(drift.relative_l2),
                number(drift.max_absolute),
                "-" if drift.scale_ulp is None else number(drift.scale_ulp),
                f"{drift.differing:,} of {drift.numel:,}",
            )
        out.print(rows)
        if top and len(differing) > top:
            out.print(f"  and {len(differing) - top} more (--top 0 shows all)")
    for side, names in ((comparison.a, parameters.only_a), (comparison.b, parameters.only_b)):
        if names:
            out.print(f"  only {side} has {', '.join(names)}", soft_wrap=True)
    for mismatch in parameters.mismatches:
        sides = (
            f"{mismatch.dtype_a} {list(mismatch.shape_a)} in {comparison.a}",
            f"{mismatch.dtype_b} {list(mismatch.shape_b)} in {comparison.b}",
        )
        out.print(f"  {mismatch.name} is {', '.join(sides)}", soft_wrap=True)


def _show_global_batch(out: Console, compared: GlobalBatchComparison, top: int) -> None:
    """Print the distance between a run of several processes and a run of one process that takes the whole batch."""
    losses = compared.losses
    out.print(
        f"{compared.several}, {compared.world_size} processes, against {compared.single}, which takes the whole batch",
        soft_wrap=True,
    )
    if losses.common_steps:
        out.print(
            f"  the mean of the ranks' losses differs by at most {number(losses.max_relative)} of the loss (step "
            f"{losses.max_relative_step}), in {losses.common_steps:,} steps",
            soft_wrap=True,
        )
    if compared.jump is not None:
        # rounding differs from the first step on; a jump in the distance shows where to look
        at = compared.jump.at
        part = "" if at.rank is None else f", most in the part of rank {at.rank}"
        out.print(
            f"  the distance grows the most at step {at.step}, from {number(compared.jump.before)} to "
            f"{number(at.relative_l2)}: {_name(at)}{part} ({at.how})",
            soft_wrap=True,
        )
    if compared.final:
        out.print(f"\nafter step {compared.final[0].step:,}")
        rows = table("  tensor", ">relative L2", "from", ">farthest rank")
        for distance in compared.final[: top or None]:
            rank = "-" if distance.rank is None else str(distance.rank)
            rows.add_row(f"  {_name(distance)}", number(distance.relative_l2), distance.how, rank)
        out.print(rows)
    for text in compared.lacking:
        out.print(f"  note: {text}", soft_wrap=True)
    out.print("These are distances, not a verdict: the two runs add the parts of a batch in a different order.")


def _name(distance: TensorDistance) -> str:
    return f"{distance.tensor} (gradient)" if distance.what == "gradient" else distance.tensor

"""`numdrift metrics`: the compilations, executions and transfers of each mode's backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..api.chosen_runs import metrics_of_runs, runs_meant
from ..records.modes.mode_spec import parse_mode
from ..records.tools.backend_work import FROM_DEVICE, TO_DEVICE, WORKED
from ..tools.metrics.metrics_report import metrics_report
from ..tools.metrics.metrics_summary import Distribution, MetricsSummary, Transfers, summarize
from ..tools.metrics.metrics_trace import metrics_trace
from .command_options import force_option, json_option, out_option, run_mode_option, target_argument
from .output import console, table, write_json

SCHEMA = 1

MOST_LINES = 12
"""The maximum number of lines about a run's graphs and copies, and of steps shown per run; --all shows the rest."""

NO_STEP = "a script that trains in its own way must call numdrift.step() at the end of each step"

EXAMPLES = """\b
Examples:
  numdrift run train.py --modes compile,lazy --metrics -- --epochs 2
  numdrift metrics runs/train
  numdrift metrics runs/train/lazy --steps
  numdrift metrics runs/train --text
  numdrift metrics runs/train --mode lazy --json -
  numdrift metrics runs/train --trace train.json
  numdrift plot runs/train --what timeline

\b
compiled    graphs that were compiled, and how long that took, including tracing
again       functions that were compiled again because a guard failed, each with its line and the guard
found       graphs that were found in a cache of compiled graphs
executed    graphs that were executed; in an eager mode such as cpu, each forward, backward and optimizer counts as
            one execution
sizes       the numbers of nodes of the executed graphs
falls back  calls of operators that the backend lacks, and graph breaks
read early  values that were read before a mark_step
to, from    copies between the host and the device, with the lines that cause them, and the places where the host
            waits; launches of kernels are counted only by `numdrift profile`
p50, p95    the median and the 95th percentile
The JSON contains `schema` (1) and `runs`. Each run has `by_step`: the seconds, bytes, counters and memory of each
step.
Exit codes: 0 shown, 2 wrong usage or no metrics recorded, 3 a file cannot be read.
"""


@click.command(
    epilog=EXAMPLES,
    help="Show what each mode's backend compiled, executed and transferred in a run, or in every run of an "
    "investigation (default: the newest).",
)
@target_argument
@run_mode_option
@click.option("--steps", is_flag=True, help="Also print a table of the steps.")
@click.option("--text", is_flag=True, help="Print the report in the format of torch_xla and torch's lazy core.")
@click.option(
    "--trace", "trace_path", metavar="PATH",
    help="Write steps, work and memory as a trace that https://ui.perfetto.dev opens (- for standard output).",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Show every step, every counter and every place in the script.")
@click.option("--quiet", "-q", is_flag=True, help="Print only the output of --text, --json and --trace.")
@out_option
@force_option
@json_option
def command(
    target: str | None,
    mode: str | None,
    steps: bool,
    text: bool,
    trace_path: str | None,
    everything: bool,
    quiet: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    runs = runs_meant(target, out, mode)
    measured = metrics_of_runs(runs)
    if json_path:
        records = [summarize(metrics).to_json() for metrics in measured]
        write_json(json_path, {"schema": SCHEMA, "runs": records}, force=force)
    if trace_path:
        write_json(trace_path, metrics_trace(measured), force=force)
    screen = console()
    if text:
        for number, metrics in enumerate(measured):
            if len(measured) > 1:
                screen.print("\n" * (number > 0) + f"{metrics.run.path} ({metrics.run.manifest.spec})", soft_wrap=True)
            screen.print(metrics_report(metrics), end="", soft_wrap=True)
    elif "-" not in (json_path, trace_path) and not quiet:
        summaries = [summarize(metrics) for metrics in measured]
        screen.print(_table(summaries))
        for summary in summaries:
            _show_notes(screen, summary, everything)
        for summary in summaries if steps else ():
            screen.print()
            _show_steps(screen, summary, everything)
    if "-" not in (json_path, trace_path) and not quiet:
        without = [run.path.name for run in runs if all(run is not metrics.run for metrics in measured)]
        if without:
            screen.print(f"\nwithout metrics: {', '.join(without)}")
        if trace_path:
            screen.print(f"\nWrote {trace_path}: it opens in https://ui.perfetto.dev", soft_wrap=True)
    return 0


def _table(summaries: Sequence[MetricsSummary]) -> Table:
    """Return a table with a column for each run.

    A row that is empty for every run is left out. Most modes, for example, transfer nothing.
    """
    rows = table("", *(f">{summary.metrics.run.path.name}" for summary in summaries))
    rows.add_row("backend", *(summary.metrics.backend for summary in summaries))

    def add(name: str, value: Callable[[MetricsSummary], str]) -> None:
        cells = [value(summary) for summary in summaries]
        if any(cell not in ("", "-", "0") for cell in cells):
            rows.add_row(name, *cells)

    def add_times(times: Callable[[MetricsSummary], Distribution]) -> None:
        add("  total time", lambda summary: duration(times(summary).total if times(summary).values else None))
        add("  time p50", lambda summary: duration(times(summary).percentile(50)))
        add("  time p95", lambda summary: duration(times(summary).percentile(95)))

    def add_transfers(name: str, moved: Callable[[MetricsSummary], Transfers]) -> None:
        add(name, lambda summary: f"{moved(summary).count:,}" if moved(summary).count else "-")
        add("  bytes", lambda summary: size(moved(summary).bytes) if moved(summary).count else "-")
        add("  time", lambda summary: duration(moved(summary).timed.total if moved(summary).timed.values else None))

    add("steps", lambda summary: f"{len(summary.metrics.steps):,}")
    add_times(lambda summary: summary.steps)
    # if ops are executed as they are called, nothing is compiled, and 0 would look like a failure
    add("compiled", lambda summary: "-" if summary.metrics.executes_at_once else f"{len(summary.compiled):,}")
    add_times(lambda summary: summary.compile_seconds)
    add("compiled again", lambda summary: _count(sum(recompilation.count for recompilation in summary.recompilations)))
    add("found", lambda summary: "-" if summary.metrics.executes_at_once else f"{len(summary.found):,}")
    add("executed", lambda summary: f"{len(summary.executed):,}")
    add_times(lambda summary: summary.execute_seconds)
    add("sizes p50", lambda summary: _count(summary.sizes.percentile(50)))
    add("  largest", lambda summary: _count(max(summary.sizes.values, default=None)))
    add_transfers("to device", lambda summary: summary.to_device)
    add_transfers("from device", lambda summary: summary.from_device)
    add(
        "falls back",
        lambda summary: _count(sum(fragment.count for fragment in summary.fragmentation if not fragment.is_read)),
    )
    add(
        "read early",
        lambda summary: _count(sum(fragment.count for fragment in summary.fragmentation if fragment.is_read)),
    )
    add("peak memory", lambda summary: size(summary.peak))
    add("  of the device", lambda summary: size(summary.device_peak))
    add("  reserved", lambda summary: size(summary.reserved_peak))
    return rows


def _show_notes(out: Console, summary: MetricsSummary, everything: bool) -> None:
    """Print a run's recompilations and copies, the causes of fragmented graphs, and where the metrics were cut off."""
    name, metrics, manifest = summary.metrics.run.path.name, summary.metrics, summary.metrics.run.manifest
    if metrics.unavailable:
        out.print(f"\n{name}: its backend could not be observed: {metrics.unavailable}", soft_wrap=True)
    if metrics.has_ended and not metrics.steps:
        why = f"{manifest.status}: {manifest.message}" if manifest.failed else NO_STEP
        out.print(f"\n{name} reached no step ({why})", soft_wrap=True)
    places = [
        *_recompilations(summary),
        *(f"warning: {fragment.text}" for fragment in summary.fragmentation),
        *_copies(summary),
    ]
    if places:
        out.print(f"\n{name}:")
    shown = places if everything else places[:MOST_LINES]
    for text in shown:
        out.print(f"  {text}", soft_wrap=True)
    if len(shown) < len(places):
        out.print(f"  and {len(places) - len(shown):,} more places (--all)")
    if not metrics.has_ended:
        reached = f"step {metrics.steps[-1].step}" if metrics.steps else "its setup"
        out.print(f"\n{name} was cut off ({manifest.status}): its metrics end with {reached}", soft_wrap=True)


def _recompilations(summary: MetricsSummary) -> Iterator[str]:
    for recompilation in summary.recompilations:
        call, often = (
            recompilation.call or "a function",
            "once" if recompilation.count == 1 else f"{recompilation.count:,} times",
        )
        seconds = duration(recompilation.seconds)
        yield f"warning: {call} was compiled again {often}, {seconds} in all: {recompilation.reason}"


def _copies(summary: MetricsSummary) -> Iterator[str]:
    """Yield a text about each line of the script that copies to or from a device.

    Yield nothing for a lazy mode: there, a copy cuts a graph, and the cut is reported instead.
    """
    if not parse_mode(summary.metrics.run.manifest.spec).capabilities.has_values:
        return
    for copy in summary.copies:
        in_steps = f" in {copy.steps:,} step{'s' * (copy.steps != 1)}" if copy.steps else ""
        often = "once" if copy.count == 1 else f"{copy.count:,} times{in_steps}"
        waits = "; the host waits there for the device" if copy.waits else ""
        yield f"{copy.text}: {often}, {size(copy.bytes)}, {duration(copy.seconds)} in all{waits}"


def _show_steps(out: Console, summary: MetricsSummary, everything: bool) -> None:
    metrics = summary.metrics
    on_device = any("device" in part.memory for part in metrics.parts)
    out.print(f"{metrics.run.path} ({metrics.run.manifest.spec})", soft_wrap=True)
    rows = table(
        "step", ">time", ">compile", ">execute", ">transfer", ">recording", ">other", ">compiled", ">found",
        ">executed", ">nodes", ">to device", ">from device", ">resident", *([">device"] if on_device else []),
    )  # fmt: skip
    parts = metrics.parts
    # compilers work in the first parts, and the last part shows how far the run got
    shown = parts if everything or len(parts) <= MOST_LINES else [*parts[: MOST_LINES - 1], parts[-1]]
    for part in shown:
        if part is parts[-1] and len(shown) < len(parts):
            rows.add_row("...")
        compiles, executed = list(part.of("compile")), list(part.of("execute"))
        moved = [
            sum(work.size or 0 for work in part.of("transfer") if work.name == name)
            for name in (TO_DEVICE, FROM_DEVICE)
        ]
        rows.add_row(
            part.name or f"{part.step:,}",
            duration(part.seconds),
            *(duration(part.seconds_of(kind) or None) for kind in WORKED),
            duration(part.recording),
            duration(part.other),
            f"{sum(not work.cached for work in compiles):,}",
            f"{sum(bool(work.cached) for work in compiles):,}",
            f"{len(executed):,}",
            f"{sum(work.size or 0 for work in executed):,}",
            *(size(count) if count else "-" for count in moved),
            size(part.memory.get("resident")),
            *([size(part.memory.get("device"))] if on_device else []),
        )
    out.print(rows)


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Return a time with three significant digits in a unit that fits."""
    if seconds is None:
        return "-"
    if seconds < 1e-9:  # below the resolution of any clock
        return "0"
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:,.3g} {name}" if seconds < 1000 * unit else f"{seconds / unit:,.0f} {name}"
    return f"{seconds * 1e6:.3g} µs"


def size(count: int | None) -> str:
    """Return a number of bytes in a unit that fits."""
    if count is None:
        return "-"
    value, names = float(count), iter(("B", "KiB", "MiB", "GiB"))
    name = next(names)
    while value >= 1024 and (larger := next(names, None)) is not None:
        value, name = value / 1024, larger
    return f"{value:.0f} {name}" if name == "B" else f"{value:,.3g} {name}"

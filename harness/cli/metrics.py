"""`numdrift metrics`: what each mode's backend compiled, executed and transferred."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console

from ..errors import MetricsNotFound
from ..records.backend_work import FROM_DEVICE, TO_DEVICE, WORKED, StepMetrics
from ..tools.metrics.metrics_report import metrics_report
from ..tools.metrics.metrics_summary import Distribution, MetricsSummary, Transfers, summarize
from ..tools.metrics.run_metrics import RunMetrics, metrics_of
from .command_options import force_option, json_option, out_option
from .graph.selection import mode_option, recorded_runs, target_argument
from .output import console, table, write_json

SCHEMA = 1

MOST_LINES = 12
"""Of what fragments graphs and of a mode's steps; --all shows the rest."""

NO_STEP = "where a script trains in its own way, it calls numdrift.step() where a step ends"

EXAMPLES = """\b
Examples:
  numdrift run train.py --modes compile,lazy --metrics -- --epochs 2
  numdrift metrics runs/train
  numdrift metrics runs/train/lazy --steps
  numdrift metrics runs/train --text
  numdrift metrics runs/train --mode lazy --json -
  numdrift plot runs/train --what timeline

\b
compiled   graphs that were compiled, and how long that took, tracing included
found      graphs that a cache of compiled graphs had
executed   graphs that were executed; where an operator is executed when it is called (cpu and other eager modes),
           each forward, backward and optimizer is one execution
sizes      the nodes of the executed graphs
falls back operators that the backend does not have, and graph breaks; read early: values that were read before
           a mark_step
p50, p95   half of the values, and 95 of 100, are no larger
The JSON holds `schema` (1) and `runs`; each has `by_step`, the seconds, bytes, counters and memory of each step.
Exit codes: 0 shown, 2 wrong usage or no metrics taken, 3 a file cannot be read.
"""


@click.command(
    epilog=EXAMPLES,
    help="Show what each mode's backend compiled, executed and transferred in a run, or in every run of an "
    "investigation (default: the newest).",
)
@target_argument
@mode_option
@click.option("--steps", is_flag=True, help="Also a table of the steps.")
@click.option("--text", is_flag=True, help="The report in the form that torch_xla and torch's lazy core print.")
@click.option("--all", "everything", is_flag=True, help="Every step, counter and place, however many.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but what is asked for by --text or --json.")
@out_option
@force_option
@json_option
def command(
    target: str | None,
    mode: str | None,
    steps: bool,
    text: bool,
    everything: bool,
    quiet: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    runs = recorded_runs(target, out, mode)
    measured: list[RunMetrics] = []
    for run in runs:
        with suppress(MetricsNotFound):
            measured.append(metrics_of(run))
    if not measured:
        metrics_of(runs[0])
    if json_path:
        found = [summarize(one).to_json() for one in measured]
        write_json(json_path, {"schema": SCHEMA, "runs": found}, force=force)
    screen = console()
    if text:
        show_text(screen, measured)
    elif json_path != "-" and not quiet:
        show(screen, [summarize(one) for one in measured], steps=steps, everything=everything)
    if json_path != "-" and not quiet:
        without = [run.path.name for run in runs if all(run is not one.run for one in measured)]
        if without:
            screen.print(f"\nwithout metrics: {', '.join(without)}")
    return 0


def show_text(out: Console, measured: Sequence[RunMetrics]) -> None:
    for number, one in enumerate(measured):
        if len(measured) > 1:
            out.print("\n" * (number > 0) + f"{one.run.path} ({one.run.manifest.spec})", soft_wrap=True)
        out.print(metrics_report(one), end="", soft_wrap=True)


def show(out: Console, summaries: Sequence[MetricsSummary], *, steps: bool, everything: bool) -> None:
    """Print a table with a column for each run, then of each run what fragments its graphs, and what ended it early."""
    out.print(_table(summaries))
    for one in summaries:
        _show_notes(out, one, everything)
    for one in summaries if steps else ():
        out.print()
        _show_steps(out, one, everything)


def _table(summaries: Sequence[MetricsSummary]) -> object:
    rows = table("", *(f">{one.metrics.run.path.name}" for one in summaries))
    rows.add_row("backend", *(one.metrics.backend for one in summaries))

    def add(name: str, value: Callable[[MetricsSummary], str]) -> None:
        cells = [value(one) for one in summaries]
        if any(cell not in ("", "-", "0") for cell in cells):
            rows.add_row(name, *cells)

    add("steps", lambda one: f"{len(one.metrics.steps):,}")
    _add_times(add, "  time", lambda one: one.steps)
    add("compiled", lambda one: _graphs(one, f"{len(one.compiled):,}"))
    _add_times(add, "  time", lambda one: one.compile_seconds)
    add("found", lambda one: _graphs(one, f"{len(one.found):,}"))
    add("executed", lambda one: f"{len(one.executed):,}")
    _add_times(add, "  time", lambda one: one.execute_seconds)
    add("sizes p50", lambda one: _count(one.sizes.percentile(50)))
    add("  largest", lambda one: _count(max(one.sizes.values, default=None)))
    for name, direction in (
        ("to device", lambda one: one.to_device),
        ("from device", lambda one: one.from_device),
    ):
        _add_transfers(add, name, direction)
    add("falls back", lambda one: _count(sum(found.count for found in one.fragmentation if not found.is_read)))
    add("read early", lambda one: _count(sum(found.count for found in one.fragmentation if found.is_read)))
    add("peak memory", lambda one: size(one.peak))
    add("  of the device", lambda one: size(one.device_peak))
    return rows


Add = Callable[[str, Callable[[MetricsSummary], str]], None]


def _add_times(add: Add, name: str, times: Callable[[MetricsSummary], Distribution]) -> None:
    add(f"{name} in all", lambda one: duration(times(one).total if times(one).values else None))
    for share in (50, 95):
        add(f"{name} p{share}", lambda one, share=share: duration(times(one).percentile(share)))  # type: ignore[misc]


def _add_transfers(add: Add, name: str, direction: Callable[[MetricsSummary], Transfers]) -> None:
    add(name, lambda one: f"{direction(one).count:,}" if direction(one).count else "-")
    add("  bytes", lambda one: size(direction(one).bytes) if direction(one).count else "-")
    add("  time", lambda one: duration(direction(one).timed.total if direction(one).timed.values else None))


def _graphs(one: MetricsSummary, text: str) -> str:
    return "-" if one.metrics.executes_at_once else text


def _show_notes(out: Console, one: MetricsSummary, everything: bool) -> None:
    name, metrics = one.metrics.run.path.name, one.metrics
    if metrics.unavailable:
        out.print(f"\n{name}: its backend could not be observed: {metrics.unavailable}", soft_wrap=True)
    if metrics.has_ended and not metrics.steps:
        manifest = metrics.run.manifest
        why = f"{manifest.status}: {manifest.message}" if manifest.failed else NO_STEP
        out.print(f"\n{name} reached no step ({why})", soft_wrap=True)
    if one.fragmentation:
        out.print(f"\n{name}:")
    shown = one.fragmentation if everything else one.fragmentation[:MOST_LINES]
    for found in shown:
        out.print(f"  warning: {found.text}", soft_wrap=True)
    if len(shown) < len(one.fragmentation):
        out.print(f"  and {len(one.fragmentation) - len(shown):,} more places (--all)")
    if not metrics.has_ended:
        status = metrics.run.manifest.status
        reached = f"step {metrics.steps[-1].step}" if metrics.steps else "its setup"
        out.print(f"\n{name} was cut off ({status}): its metrics end with {reached}", soft_wrap=True)


def _show_steps(out: Console, one: MetricsSummary, everything: bool) -> None:
    metrics = one.metrics
    out.print(f"{metrics.run.path} ({metrics.run.manifest.spec})", soft_wrap=True)
    rows = table(
        "step", ">time", ">compile", ">execute", ">transfer", ">recording", ">other", ">compiled", ">found",
        ">executed", ">nodes", ">to device", ">from device", ">resident",
    )  # fmt: skip
    parts = metrics.parts
    shown = parts if everything or len(parts) <= MOST_LINES else [*parts[: MOST_LINES - 1], parts[-1]]
    for part in shown:
        if part is parts[-1] and len(shown) < len(parts):
            rows.add_row("...")
        rows.add_row(*_cells(part))
    out.print(rows)


def _cells(part: StepMetrics) -> list[str]:
    compiles, executed = list(part.of("compile")), list(part.of("execute"))
    moved = {
        name: sum(one.size or 0 for one in part.of("transfer") if one.name == name) for name in (TO_DEVICE, FROM_DEVICE)
    }
    return [
        part.name or f"{part.step:,}",
        duration(part.seconds),
        *(duration(part.seconds_of(kind) or None) for kind in WORKED),
        duration(part.recording),
        duration(part.other),
        f"{sum(not one.cached for one in compiles):,}",
        f"{sum(bool(one.cached) for one in compiles):,}",
        f"{len(executed):,}",
        f"{sum(one.size or 0 for one in executed):,}",
        *(size(count) if count else "-" for count in moved.values()),
        size(part.memory.get("resident")),
    ]


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Three significant digits in a unit that fits."""
    if seconds is None:
        return "-"
    if seconds < 1e-9:
        return "0"
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:,.3g} {name}" if seconds < 1000 * unit else f"{seconds / unit:,.0f} {name}"
    return f"{seconds * 1e6:.3g} µs"


def size(count: int | None) -> str:
    """Bytes in a unit that fits."""
    if count is None:
        return "-"
    value, names = float(count), iter(("B", "KiB", "MiB", "GiB"))
    name = next(names)
    while value >= 1024 and (larger := next(names, None)) is not None:
        value, name = value / 1024, larger
    return f"{value:.0f} {name}" if name == "B" else f"{value:,.3g} {name}"

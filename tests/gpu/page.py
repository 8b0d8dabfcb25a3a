"""The page that documents a run of the list on a GPU, from its results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .outcome import Outcome, Results
from .rows import FAULT, NONFINITE, OTHER, REPRODUCER, SETTING, TRAINING, UNREPEATABLE
from .shown import modes_of, seconds_of

HEADINGS = {
    REPRODUCER: "Reproducers",
    TRAINING: "Other scripts",
    FAULT: "Planted faults",
    UNREPEATABLE: "What does not repeat",
    SETTING: "Settings as causes",
    NONFINITE: "NaN and infinity",
}

HEAD = """# On a GPU

This page shows the results of a fixed list of investigations and measurements in mode `cuda`, and in mode `compile` on CUDA. The
command `scripts/gpu` runs the whole list on a machine with a GPU, which needs no network connection. The list was measured
on {date} with torch {torch} and Python {python} on {gpu}, {cores} cores. Up to {jobs} investigations ran at the same time{runs}.
The command wrote the tables. {count}.

The scripts in `tests/gpu/trainings` are part of numdrift. They name `cuda`, as most scripts do, but they also train in mode `cpu`.
*Seconds* is the time of the whole command. The parentheses contain two numbers: this time as a multiple of the time of the bare
scripts (without numdrift) in the same modes, and the seconds of the bare scripts. The command and the bare scripts each begin
with an empty Inductor cache. All commands and scripts share one GPU and the machine's {cores} cores.
"""

INVESTIGATED = "| what | modes | verdict | first cause | seconds | as expected |\n|---|---|---|---|--:|---|"
MEASURED = "| what | modes | expected | found | seconds | as expected |\n|---|---|---|---|--:|---|"


def page(results: Results) -> str:
    """Return the page in Markdown."""
    return "\n".join(parts(results)).rstrip() + "\n"


def parts(results: Results) -> Iterator[str]:
    """Yield the page piece by piece."""
    machine = results.machine
    gpu = (
        f"one {machine['gpu']} (driver {machine['driver']}, {machine['gpu memory']})"
        if "gpu" in machine
        else machine["device"]
    )
    runs = (
        f". The list was completed in {results.runs} sessions; each session ran the rows that were still missing"
        if results.runs > 1
        else ""
    )
    yield HEAD.format(**{**machine, "gpu": gpu, "runs": runs, "count": counted(results)})
    for group, heading in HEADINGS.items():
        rows = of_group(results, group)
        if rows:
            yield f"## {heading}\n\n{INVESTIGATED}"
            yield from (investigated(row, results) for row in rows)
            yield ""
    rows = of_group(results, OTHER)
    if rows:
        yield f"## Other checks\n\n{MEASURED}"
        yield from (measured(row, results) for row in rows)
        yield ""
    yield from wrong(results)
    yield from skipped(results)


def counted(results: Results) -> str:
    """Say in a sentence how many rows came out as expected, and how long the list took."""
    right, wrong, skipped = results.counts()
    left_out = "none was" if not skipped else "1 was" if skipped == 1 else f"{skipped} were"
    return f"{right} rows came out as expected, {wrong} did not, and {left_out} skipped; the list took {results.seconds:.0f} s"


def of_group(results: Results, group: str) -> Sequence[Outcome]:
    """Return the rows of a group that were not skipped."""
    return [row for row in results.rows if row.group == group and not row.skipped]


def investigated(row: Outcome, results: Results) -> str:
    return _cells(row.what, _modes(row), row.found, row.cause or "none", seconds_of(row, results), _holds(row, results))


def measured(row: Outcome, results: Results) -> str:
    return _cells(row.what, _modes(row), row.expected, row.found, seconds_of(row, results), _holds(row, results))


def wrong(results: Results) -> Iterator[str]:
    """Yield what is not as expected, each with what is wrong."""
    found = [(row, problem) for row in results.rows if (problem := row.problem(results.bare))]
    if found:
        yield "## Not as expected\n"
        yield from (f"- *{row.name}* ({row.what}): {_plain(problem)}" for row, problem in found)
        yield ""


def skipped(results: Results) -> Iterator[str]:
    """Yield what was left out, and why."""
    found = [row for row in results.rows if row.skipped]
    if found:
        yield "## Left out\n"
        yield from (f"- *{row.name}* ({row.what}): {_plain(row.skipped)}" for row in found)


def _holds(row: Outcome, results: Results) -> str:
    return "**no**" if row.problem(results.bare) else "yes"


def _modes(row: Outcome) -> str:
    return " ".join(f"`{mode}`" for mode in modes_of(row))


def _cells(*texts: str) -> str:
    return f"| {' | '.join(map(_plain, texts))} |"


def _plain(text: str) -> str:
    """Return a text that fits in a cell, or a line, of Markdown."""
    return " ".join(text.replace("|", "\\|").split())

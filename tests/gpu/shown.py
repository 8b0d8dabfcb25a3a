"""Results as a table on the screen, and a row as a line while the list runs."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from .device import parts_of
from .outcome import Outcome, Results

COLUMNS = ("row", "what", "modes", "expected", "found", "cause, expected", "found", "seconds (of bare)", "as expected")


def line_of(row: Outcome) -> str:
    """Say in a line what became of a row."""
    if row.skipped:
        return f"{row.name}: skipped, {row.skipped}"
    found = ", ".join(filter(None, [row.found, row.cause]))
    return f"{row.name}: {'WRONG' if row.wrong else 'ok'}, {found}, {row.seconds:.0f} s" + (
        f" ({row.wrong})" if row.wrong else ""
    )


def table_of(results: Results) -> Table:
    """Return all rows as a table."""
    table = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    for row in results.rows:
        problem = row.problem(results.bare)
        verdict = Text(f"skipped: {row.skipped}" if row.skipped else problem or "ok")
        verdict.stylize("dim" if row.skipped else "red" if problem else "green")
        cells = (row.name, row.what, ", ".join(modes_of(row)), row.expected, row.found, row.expected_cause, row.cause)
        table.add_row(*map(Text, (*cells, seconds_of(row, results))), verdict)
    return table


def modes_of(row: Outcome) -> list[str]:
    """Return a row's modes without the names that they have in its runs."""
    return ["".join(parts_of(mode)[1:]) for mode in row.modes]


def seconds_of(row: Outcome, results: Results) -> str:
    """Return a row's seconds, and how many times those of its bare trainings that is, where they are known."""
    if row.skipped or not row.seconds:
        return ""
    if not row.bare or not set(row.bare) <= results.bare.keys():
        return f"{row.seconds:.0f}"
    bare = sum(results.bare[key] for key in row.bare)
    return f"{row.seconds:.0f} ({row.seconds / bare:.1f} of {bare:.0f})"

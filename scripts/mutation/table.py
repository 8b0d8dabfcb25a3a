"""Format results as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .sample import Mutant
from .trial import Result

COLUMNS = ("area", "mutants", "killed", "survived", "not reached", "gone", "share killed")


def table(results: Mapping[str, Result]) -> str:
    """Return a table with a row for each area and one for all. The share killed leaves out mutants that are gone."""
    areas = dict.fromkeys(one.area for one in results.values())
    rows = [_row(area, [one for one in results.values() if one.area == area]) for area in areas]
    rows.append(_row("all", list(results.values())))
    widths = [max(len(row[column]) for row in [COLUMNS, *rows]) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in [COLUMNS, *rows]
    )


def _row(area: str, results: Sequence[Result]) -> tuple[str, ...]:
    killed, survived, gone = (sum(one.result == what for one in results) for what in ("killed", "survived", "gone"))
    unreached = sum(one.why == "not reached" for one in results)
    share = f"{killed / (killed + survived):.0%}" if killed + survived else "-"
    return area, *(str(count) for count in (len(results), killed, survived, unreached, gone)), share


def shown(mutant: Mutant, result: Result) -> str:
    """Describe one mutant: its place, its change, and its result."""
    place = result.place or mutant.file
    lines = [f"{mutant.id} {result.result} ({result.why or 'gone'}), {mutant.operator}, {place} {mutant.function}"]
    lines += [f"  - {mutant.before}", f"  + {mutant.after}"]
    return "\n".join([*lines, f"  {result.test}: {result.said}"] if result.test else lines)


def comparison(sample: Sequence[Mutant], before: Mapping[str, Result], after: Mapping[str, Result]) -> str:
    """Return both tables, and the mutants that were killed before and now survive or are gone."""
    parts = ["before", table(before), "", "after", table(after)]
    for what, said in (("survived", "killed before, survive"), ("gone", "killed before, gone")):
        lost = [
            one
            for one in sample
            if one.id in before
            and before[one.id].result == "killed"
            and one.id in after
            and after[one.id].result == what
        ]
        parts += ["", f"{said} now: {len(lost)}"]
        for one in lost:
            parts += [shown(one, after[one.id]), f"  before: {before[one.id].test or before[one.id].why}"]
    won = [
        id for id, one in after.items() if one.result == "killed" and id in before and before[id].result == "survived"
    ]
    return "\n".join([*parts, "", f"survived before, killed now: {len(won)} {' '.join(won)}".rstrip()])

"""What `numdrift snapshot replay` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from ...tools.snapshots.replay_answer import Answer, Compared, answer_of
from ..output import console, number, table, write_json
from .contents import readable

SCHEMA = 1
MOST_ROWS = 40
"""Outputs that are shown, those that differ before the others; --json has all."""

ORDER = ("beyond rounding", "within rounding", "equal", "identical", "not held")


def replay(path: Path, mode: str | None, *, quiet: bool, json_path: str | None) -> int:
    answer = answer_of(path, mode, readable(path))
    if json_path:
        write_json(
            json_path,
            {
                "schema": SCHEMA,
                "path": str(path),
                "mode": answer.spec,
                "holds": answer.holds,
                "text": answer.text,
                "error": answer.error,
                "identical": answer.comparison.identical and not answer.error,
                "comparable": answer.comparable,
                "unmeasured": answer.comparison.unmeasured,
                "notes": list(answer.notes),
                "outputs": [asdict(one) for one in answer.comparison.outputs],
            },
        )
    if json_path != "-" and not quiet:
        _show(answer, console())
    return 0 if answer.holds else 1


def _show(answer: Answer, out: Console) -> None:
    out.print(f"In mode {answer.spec} {answer.text}.", soft_wrap=True)
    rows = sorted(answer.comparison.outputs, key=lambda one: ORDER.index(one.state))
    if any(one.state in ORDER[:2] for one in rows):
        out.print(_table(rows[:MOST_ROWS]))
        if len(rows) > MOST_ROWS:
            out.print(f"and {len(rows) - MOST_ROWS} more, which --json has")
    for note in answer.notes:
        out.print(f"note: {note}", soft_wrap=True)


def _table(rows: Sequence[Compared]) -> object:
    made = table("output", "dtype", "shape", ">differing", ">max ULP", ">relative L2", ">of rounding", "")
    for one in rows:
        made.add_row(
            one.name,
            one.dtype,
            "x".join(map(str, one.shape)) or "scalar",
            f"{one.differing:,}",
            "-" if one.max_ulp is None else f"{one.max_ulp:,}",
            number(one.relative_l2),
            "-" if one.of_rounding is None else f"{one.of_rounding:.3g}x",
            "other draws" if one.other_draws else one.state,
        )
    return made

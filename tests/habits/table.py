"""Runs the habits and writes `docs/reference/adoption.md`: `python -m tests.habits.table [--only NAME,...] [--modes LIST]`.

With `--only` nothing is written; what is wrong is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from .habit import MODES, Habit
from .habits import HABITS
from .trial import Outcome, try_habit

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "adoption.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of scripts, without .py")
    parser.add_argument("--modes", default=",".join(MODES))
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [habit.name for habit in HABITS]
    modes = options.modes.split(",")
    rows: list[list[Outcome]] = []
    for habit in (one for one in HABITS if one.name in wanted):
        with tempfile.TemporaryDirectory() as folder:
            rows.append(outcomes_of(habit, modes, Path(folder)))
    if not options.only:
        PAGE.write_text(page(rows), encoding="utf-8")
        print(f"Wrote {PAGE}")
    return int(any(outcome.wrong for row in rows for outcome in row))


def outcomes_of(habit: Habit, modes: Sequence[str], folder: Path) -> list[Outcome]:
    outcomes = try_habit(habit, modes, folder / "runs")
    for one in outcomes:
        said = "as bare" if not one.wrong else "; ".join(one.wrong)[:1200]
        print(
            f"{habit.name} {one.mode}: {said} [{one.run.manifest.seconds:.1f} s, {one.overhead:.2f}]",
            flush=True,
        )
    return outcomes


def page(rows: Sequence[Sequence[Outcome]]) -> str:
    lines = [
        "# Habits of training scripts",
        "",
        "Each script of `tests/habits/scripts`, run by plain python and by numdrift; `python -m tests.habits.table` wrote this",
        f"page with torch {torch.__version__}. *as bare* means: the losses, the parameters after the last step, stdout and the",
        "exit code are the bare script's, bit for bit. Behind it, the seconds of the process against the bare one's, imports",
        "and compilation included. In lazy mode a script that names no device is held against its run on the CPU (marked ¹).",
        "",
        "| script | habit | steps | loss at | cpu | compile | lazy |",
        "|---|---|--:|---|---|---|---|",
        *(_row(row) for row in rows),
    ]
    return "\n".join([*lines, ""])


def _row(row: Sequence[Outcome]) -> str:
    habit = row[0].habit
    found = next((one.found for one in row if one.found), "")
    link = f"[{habit.name}](../../tests/habits/scripts/{habit.script})"
    cells = [_cell(one) for one in row]
    return f"| {' | '.join([link, habit.title, str(row[0].habit.steps), found.rpartition('/')[2], *cells])} |"


def _cell(one: Outcome) -> str:
    if one.mode in one.habit.not_in:
        return one.habit.not_in[one.mode]
    if one.wrong:
        return f"not yet: {one.wrong[0]}"
    mark = " ¹" if one.bare is not None and one.bare.on_cpu else ""
    return f"as bare{mark}, {one.overhead:.2f}"


if __name__ == "__main__":
    sys.exit(main())

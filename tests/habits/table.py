"""Runs the habits and writes `docs/reference/adoption.md`: `python -m tests.habits.table [--only NAME,...] [--modes LIST]`.

It takes the better part of an hour on two cores. What was run lies in `--state`, a JSON line a script: called again with it, the
command goes on where it was ended. With `--only` the page is not written; what is wrong is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from .habit import MODES, Habit
from .habits import HABITS
from .trial import Outcome, run_bare, try_habit

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "adoption.md"

Cells = Mapping[str, str]
"""What the page says of a script, by mode."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of scripts, without .py")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--state", type=Path, help="where to keep what was run")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [habit.name for habit in HABITS]
    modes = options.modes.split(",")
    rows = _known(options.state)
    for habit in (one for one in HABITS if one.name in wanted and one.name not in rows):
        with tempfile.TemporaryDirectory() as folder:
            rows[habit.name] = cells_of(habit, modes, Path(folder))
        if options.state is not None:
            with options.state.open("a", encoding="utf-8") as state:
                state.write(json.dumps({habit.name: rows[habit.name]}) + "\n")
    if not options.only:
        there = shown(PAGE.read_text(encoding="utf-8"))
        PAGE.write_text(page({name: {**there.get(name, {}), **rows[name]} for name in rows}), encoding="utf-8")
        print(f"Wrote {PAGE}")
    return int(any(WRONG in text for cells in rows.values() for text in cells.values()))


def _known(state: Path | None) -> dict[str, Cells]:
    if state is None or not state.exists():
        return {}
    known: dict[str, Cells] = {}
    for line in state.read_text(encoding="utf-8").splitlines():
        known |= json.loads(line)
    return known


def cells_of(habit: Habit, modes: Sequence[str], folder: Path) -> Cells:
    try:
        if "compile" in modes and "compile" not in habit.not_in:
            warm = folder / "warm"  # what is compiled here both find in Inductor's cache
            warm.mkdir()
            run_bare(habit, "compile", warm)
        outcomes = try_habit(habit, modes, folder / "runs")
    except RuntimeError as error:
        cells = dict.fromkeys(modes, f"{WRONG}: {str(error).strip().splitlines()[-1]}")
    else:
        cells = {one.mode: _cell(one) for one in outcomes}
    for mode, text in cells.items():
        print(f"{habit.name} {mode}: {text}", flush=True)
    return cells


def shown(text: str) -> dict[str, Cells]:
    """What a page says of each script."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    header, *rows = lines
    return {row[0][1 : row[0].index("]")]: dict(zip(header[3:], row[3:], strict=True)) for row in rows}


def page(rows: Mapping[str, Cells]) -> str:
    lines = [
        "# Habits of training scripts",
        "",
        "This page shows that numdrift does not change a training. It compares the results of each script of `tests/habits/scripts` under",
        "plain Python with its results under numdrift.",
        f"`python -m tests.habits.table` wrote it with torch {torch.__version__}. *as bare* means that all results equal those of plain Python,",
        "bit for bit: the losses, the parameters after the last step, stdout and the exit code. The number after it is the time of the",
        "process as a multiple of the time with plain Python. It includes imports and compilation (from Inductor's cache in both). In lazy",
        "mode a script that names no device is compared with its run on the CPU (marked ¹). All runs in xla, including those with plain",
        "Python, are in the environment that `scripts/xla` makes.",
        "",
        f"| script | habit | steps | {' | '.join(MODES)} |",
        f"|---|---|--:|{'---|' * len(MODES)}",
        *(_row(habit, rows[habit.name]) for habit in HABITS if habit.name in rows),
    ]
    return "\n".join([*lines, ""])


def _row(habit: Habit, cells: Cells) -> str:
    link = f"[{habit.name}](../../tests/habits/scripts/{habit.script})"
    told = [cells.get(mode, "not run") for mode in MODES]
    return f"| {' | '.join([link, habit.title, str(habit.steps), *told])} |"


WRONG = "not yet"


def _cell(one: Outcome) -> str:
    if {"lazy": one.habit.lazy_rounds, "xla": one.habit.xla_rounds}.get(one.mode) and not one.wrong:
        whose = "the bare one's" if one.bare is not None and not one.bare.on_cpu else "the CPU's"
        return f"runs, with other last bits than {whose}"
    if one.mode in one.habit.not_in:
        return one.habit.not_in[one.mode]
    if one.wrong:
        return f"{WRONG}: {one.wrong[0]}"
    mark = " ¹" if one.bare is not None and one.bare.on_cpu else ""
    return f"as bare{mark}, {one.overhead:.2f}"


if __name__ == "__main__":
    sys.exit(main())

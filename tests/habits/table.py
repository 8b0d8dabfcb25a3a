"""Run the habits and write their tables: `python -m tests.habits.table [--only NAME,...] [--modes LIST]`.

The results go to `docs/reference/adoption.md`. Its cells of other habits and modes stay; `--modes=` runs nothing. The
table of `docs/guide/adopt-your-script.md` is written, too. All habits take the better part of an hour on two cores.
With `--state FILE` the command keeps its results in that file, a JSON line a habit, and a later call continues there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from ..conftest import ROOT
from .habit import MODES, Habit
from .habits import HABITS, SECTIONS
from .trial import Outcome, run_bare, try_habit

PAGE = ROOT / "docs/reference/adoption.md"
GUIDE = ROOT / "docs/guide/adopt-your-script.md"

Cells = Mapping[str, str]
"""The results of a habit by mode, in the words of the page."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(HABITS), help="names of habits")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--state", type=Path, help="where to keep what was run")
    options = parser.parse_args()
    modes = [mode for mode in options.modes.split(",") if mode]
    rows = read_state(options.state)
    for name in options.only.split(",") if modes else ():
        if name in rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = cells_of(HABITS[name], modes, Path(folder))
        if options.state is not None:
            with options.state.open("a", encoding="utf-8") as state:
                state.write(json.dumps({name: rows[name]}) + "\n")
    before = shown(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page({name: {**before.get(name, {}), **rows.get(name, {})} for name in HABITS}), encoding="utf-8")
    GUIDE.write_text(guide(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Wrote {PAGE}")
    return int(any(WRONG in text for cells in rows.values() for text in cells.values()))


def read_state(state: Path | None) -> dict[str, Cells]:
    rows: dict[str, Cells] = {}
    if state is not None and state.exists():
        for line in state.read_text(encoding="utf-8").splitlines():
            rows |= json.loads(line)
    return rows


def cells_of(habit: Habit, modes: Sequence[str], folder: Path) -> Cells:
    try:
        if "compile" in modes and "compile" not in habit.not_in:
            warm = folder / "warm"  # compiles into Inductor's cache, for the bare and the recorded run
            warm.mkdir()
            run_bare(habit, "compile", warm)
        outcomes = try_habit(habit, modes, folder / "runs")
    except RuntimeError as error:
        cells = dict.fromkeys(modes, f"{WRONG}: {str(error).strip().splitlines()[-1]}")
    else:
        cells = {outcome.mode: _cell(outcome) for outcome in outcomes}
    for mode, text in cells.items():
        print(f"{habit.name} {mode}: {text}", flush=True)
    return cells


WRONG = "not yet"


def _cell(outcome: Outcome) -> str:
    habit, mode = outcome.habit, outcome.mode
    if outcome.wrong:
        return f"{WRONG}: {outcome.wrong[0]}"
    if mode in habit.not_in:
        return habit.not_in[mode]
    if habit.rounds_in(mode):
        return f"runs; its last bits differ from {'the CPU' if mode in habit.on_cpu else 'the bare run'}'s"
    return f"as bare{' ¹' if mode in habit.on_cpu else ''}, {outcome.overhead:.2f}"


def shown(text: str) -> dict[str, Cells]:
    """Read the cells of each habit from the page."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    header, *rows = lines
    return {row[0][1 : row[0].index("]")]: dict(zip(header[3:], row[3:], strict=True)) for row in rows}


def page(rows: Mapping[str, Cells]) -> str:
    lines = [
        "# Habits of training scripts",
        "",
        "This page shows that numdrift does not change the results of a training script. Each script of `tests/habits/scripts` has",
        "a habit that is common in training scripts (the column *habit*). The page compares each script under numdrift with the",
        "same script under plain Python, in each [mode](../glossary.md). The command `python -m tests.habits.table` wrote the page",
        f"with torch {torch.__version__}.",
        "",
        "*as bare* means that all results are equal to those under plain Python, bit for bit: the losses, the parameters after the last",
        "step, stdout and the exit code. The number after *as bare* is the time of the process as a multiple of its time under plain",
        "Python. Both times include imports and compilation, and Inductor's cache is warm in both cases. ¹ marks results that are",
        "compared with plain Python on the CPU, because the script names no device, or because it does not work on the mode's device",
        "under plain Python. All runs in mode `xla`, including those under plain Python, use the environment that `scripts/xla`",
        "creates. Any other text in a cell says how the results differ from those under plain Python, or why the script cannot work in",
        "that mode.",
        "",
        f"| script | habit | steps | {' | '.join(MODES)} |",
        f"|---|---|--:|{'---|' * len(MODES)}",
        *(_row(HABITS[name], cells) for name, cells in rows.items()),
    ]
    return "\n".join([*lines, ""])


def _row(habit: Habit, cells: Cells) -> str:
    results = [cells.get(mode, "not run") for mode in MODES]
    return f"| {' | '.join([_link(habit), habit.title, str(habit.steps), *results])} |"


def _link(habit: Habit) -> str:
    arguments = f" `{' '.join(habit.arguments)}`" if habit.arguments else ""
    return f"[{habit.name}](../../tests/habits/scripts/{habit.script}){arguments}"


def guide(text: str) -> str:
    """Return the text of the guide with the rows of its table of habits written anew."""
    rows = []
    for heading, habits in SECTIONS.items():
        for habit in habits:
            reasons = "; ".join(f"{mode}: {reason}" for mode, reason in habit.not_in.items() if mode != "xla")
            rows.append(f"| {heading if habit is habits[0] else ''} | {habit.title} | {_link(habit)} | {reasons} |\n")
    before, header, after = re.split(r"(\| \| habit \| script \| cannot work \|\n\|[-|]+\n)", text)
    return before + header + "".join(rows) + re.sub(r"\A(\|.*\n)+", "", after)


if __name__ == "__main__":
    sys.exit(main())

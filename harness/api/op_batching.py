"""`numdrift check --ops --engine`: ops checked by the tasks of an engine, on this machine or on others."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..batches.batch_folder import driven
from ..engines.engine import EngineSettings, chosen_engine, require_shared
from ..engines.engine_task import END, EngineTask, TaskEnd, TaskResources, passed_on
from ..investigate.experiments.investigation_plan import compared_modes
from ..investigate.experiments.laboratory import Progress
from ..records.codec import Unreadable, read
from ..records.modes.mode_spec import ModeSpec, parse_modes
from ..records.results.op_table import FAILED, UNDECIDED, CheckedOp, OpTable
from ..records.run.user_option import option_words
from .api_running import passive_threads
from .checking import CheckRequest
from .investigating import DEFAULT_MODES
from .op_checking import folder_name, matching, recorded_op, rows_of_op, write_table

OPS_OF_A_TASK = 8
"""The number of ops that one task checks: its processes serve all of them."""

TASKS = "tasks"
"""The folder of the tasks, in the folder of the table. No op has this name."""

ROWS = "rows.json"


@dataclass(frozen=True, slots=True)
class OpEngine:
    """The engine on which ops are checked.

    name: the name of the engine
    settings: settings of the engine itself, as its library names them
    options: the values of the options that each task has
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


def ops_checked_on_engine(request: CheckRequest, pattern: str, engine: OpEngine, progress: Progress) -> OpTable:
    """Check ops as `ops_checked` does, as many at the same time as the engine has room for.

    The folders of the ops are those that `ops_checked` writes, so either goes on where the other was interrupted.
    Raises UsageError and KeyboardInterrupt.
    """
    began = time.monotonic()
    names = matching(pattern)
    modes = tuple(compared_modes(request.modes or parse_modes(DEFAULT_MODES)))
    folder = (request.out / (request.name or "ops")).absolute()
    labels = [str(spec) for spec in modes]
    rows = {} if request.force else {
        name: rows_of_op(name, found)
        for name in names
        if (found := recorded_op(folder / folder_name(name), labels)) is not None
    }  # fmt: skip
    reused = len(rows)
    left = [name for name in names if name not in rows]
    with driven(folder), passive_threads():
        if left:
            settings = EngineSettings(folder / TASKS, options=engine.settings)
            words = _words(request, engine.options, modes, folder)
            tasks = _OpTasks(folder, modes, words, request.jobs, progress, rows)
            with chosen_engine(engine.name, settings) as chosen:
                (folder / TASKS).mkdir(parents=True, exist_ok=True)
                require_shared(chosen, settings, Path(sys.executable))
                progress.say(f"{len(left):,} of {len(names):,} ops to check, on the engine {engine.name}")
                chosen.execute(tasks.of(left), tasks.ended)
        seconds = round(time.monotonic() - began, 3)
        in_order = [row for name in names for row in rows.get(name, ())]
        table = OpTable(pattern, modes[0].name, in_order, reused, seconds)
        write_table(folder, table)
    return table


def _words(request: CheckRequest, options: Mapping[str, Any], modes: Sequence[ModeSpec], folder: Path) -> list[str]:
    """Return the words of `numdrift check` that all tasks have."""
    declared = CheckRequest.options()
    own = ("name", "out", "force", "input_seeds")
    stated = [(declared[name], value) for name, value in options.items() if name not in own]
    words = [word for spec in modes for word in ("--mode", str(spec))]
    words += option_words([(option, value) for option, value in stated if value != option.default])
    if request.force:
        words.append("--force")
    return [*words, "--samples", str(request.input_seeds), "--name", folder.name, "--out", str(folder.parent)]


@dataclass
class _OpTasks:
    """The tasks that check ops, and the rows of those that have ended, by op."""

    folder: Path
    modes: Sequence[ModeSpec]
    words: Sequence[str]
    processors: int
    progress: Progress
    rows: dict[str, list[CheckedOp]]
    ops: dict[str, Sequence[str]] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> Iterator[EngineTask]:
        """Yield a task for each group of ops, with its file written. A task is named after its first op."""
        for first in range(0, len(names), OPS_OF_A_TASK):
            group = names[first : first + OPS_OF_A_TASK]
            own = self.folder / TASKS / folder_name(group[0])
            pattern = f"^({'|'.join(map(re.escape, group))})$"
            command = [sys.executable, "-m", "numdrift", "check", "--ops", pattern, *self.words]
            command += ["--json", str(own / ROWS)]
            resources = TaskResources(self.processors, devices=int(any(spec.accelerator for spec in self.modes)))
            task = EngineTask(own.name, command, own, Path.cwd(), passed_on(), resources)
            for left_over in (END, ROWS):
                (own / left_over).unlink(missing_ok=True)
            task.write()
            self.ops[task.name] = group
            yield task

    def ended(self, task: EngineTask, end: TaskEnd) -> None:
        """Note the rows of a task; an op without a row failed as its task did."""
        try:
            content = json.loads((task.folder / ROWS).read_text(encoding="utf-8"))
            found = read(OpTable, content).rows
        except (OSError, ValueError, Unreadable):
            found = []
        reason = end.message.removeprefix("numdrift: ") or f"its process ended with exit code {end.exit_code}"
        for op in self.ops[task.name]:
            rows = [row for row in found if row.op == op]
            self.rows[op] = rows or [CheckedOp(op, spec.name, FAILED, reason) for spec in self.modes[1:]]
            outcomes = ", ".join(f"{row.mode} {row.verdict or UNDECIDED}" for row in self.rows[op])
            self.progress.say(f"{op}: {outcomes}")

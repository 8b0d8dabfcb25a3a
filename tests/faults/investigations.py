"""The investigations of the benchmark: which there are, and their execution, here or by an engine of numdrift.

Each model is one investigation: the script as it is in cpu mode, and one mode for each case. A case that is the reference
itself has an investigation of its own. The trials of an investigation share its processes and the runs of its reference,
so an investigation is also what an engine executes as one task.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from numdrift.harness.batches.batch_folder import driven
from numdrift.harness.engines.engine import EngineSettings, chosen_engine, require_shared
from numdrift.harness.engines.engine_task import (
    END,
    FINISHED,
    EngineTask,
    TaskEnd,
    TaskResources,
    passed_on,
    read_end,
    read_task,
)
from numdrift.harness.launch.preloaded import SWITCH
from numdrift.harness.records.results.findings import INVESTIGATION, RUN_FAILED

from ..processes.forked import nursery
from .any_order import VARIABLE
from .case import FAULTS, MODELS, Trial
from .score import Judged

ROOT = FAULTS.parents[1]
LOCALIZE = ("--no-scripts", "--no-confirm", "--budget", "none")
DAY = 86400.0  # seconds


@dataclass(frozen=True, slots=True)
class Investigation:
    """One investigation of a model, whose pairs are the trials. `specs` are its modes, the reference first."""

    name: str
    model: str
    specs: Sequence[str]
    trials: Sequence[Trial]

    def words(self, folder: Path, jobs: int) -> list[str]:
        """The words of its command, without Python."""
        modes = [part for spec in self.specs for part in ("--mode", spec)]
        named_here = ["--name", self.name, "--out", str(folder), "--jobs", str(jobs)]
        script = str(MODELS / f"{self.model}.py")
        return ["-m", "numdrift", "investigate", script, *modes, *named_here, *LOCALIZE]

    def judged(self, content: bytes, seconds: float) -> list[Judged]:
        """What became of the trials; `content` is that of `investigation.json`."""
        pairs = {pair["b"]: pair for pair in json.loads(content)["pairs"]}
        found = [pairs.get("plain" if trial.against else trial.name, {}) for trial in self.trials]
        each = seconds / len(self.trials)
        return [Judged.of(trial, pair, each) for trial, pair in zip(self.trials, found, strict=True)]

    def written(self, folder: Path) -> list[Judged]:
        """What became of the trials, by what stands in the folder. Raises SystemExit where nothing does."""
        try:
            content = (folder / self.name / INVESTIGATION).read_bytes()
        except OSError as error:
            raise SystemExit(f"{self.name} has no findings: {error}") from None
        end = read_end(folder / self.name)
        return self.judged(content, end.seconds if end else altogether(folder / f"{self.name}.seconds", 0.0))


def investigations(model: str, chosen: Sequence[Trial]) -> Iterator[Investigation]:
    """Hold each trial against the model as it is, and that against each that is the reference itself."""
    together = [trial for trial in chosen if trial.against is None]
    if together:
        yield Investigation(model, model, ["cpu", *(trial.spec for trial in together)], together)
    for trial in chosen:
        if trial.against is not None:
            yield Investigation(f"{model}-{trial.name}", model, [trial.spec, f"plain={trial.against}"], [trial])


def executed(investigation: Investigation, folder: Path, jobs: int) -> list[Judged]:
    """Execute one here. Its processes come from the nursery, but for those of another interpreter."""
    began = time.monotonic()
    own = {} if "xla" in investigation.trials[0].mode else {SWITCH: "0"}
    done = nursery("1").run(
        [*investigation.words(folder, jobs), "--json", "-"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | own,
        timeout=DAY,
        stderr=sys.stderr.fileno(),
    )
    seconds = altogether(folder / f"{investigation.name}.seconds", time.monotonic() - began)
    if not done.stdout:
        raise SystemExit(f"the investigation of {investigation.name} ended with exit code {done.returncode}")
    return investigation.judged(done.stdout, seconds)


def executed_by_engine(
    planned: Sequence[Investigation], folder: Path, jobs: int, engine: str, options: dict[str, str]
) -> list[Judged]:
    """Execute all that the folder does not hold yet, each as a task of an engine that needs `jobs` processors."""
    folder = folder.absolute()
    tasks = [task_of(investigation, folder, jobs) for investigation in planned]
    left = [task for task in tasks if not is_done(task)]
    print(f"{len(left)} of {len(tasks)} investigations to do, on the engine {engine}", file=sys.stderr)
    failed: list[str] = []

    def ended(task: EngineTask, end: TaskEnd) -> None:
        print(f"{task.name}: exit code {end.exit_code}, {end.seconds:.0f} s on {end.host}", file=sys.stderr)
        if end.exit_code not in (*FINISHED, RUN_FAILED):
            failed.append(f"the investigation of {task.name} ended with exit code {end.exit_code}: {end.message}")

    with driven(folder):
        if left:
            settings = EngineSettings(folder, options=options)
            with chosen_engine(engine, settings) as opened:
                require_shared(opened, settings, Path(sys.executable))
                opened.execute(prepared(left), ended)
    if failed:
        raise SystemExit("\n".join(failed))
    return [judged for investigation in planned for judged in investigation.written(folder)]


def task_of(investigation: Investigation, folder: Path, jobs: int) -> EngineTask:
    """Return the task that executes an investigation in a folder of its own."""
    planted = {name: os.environ[name] for name in (VARIABLE,) if name in os.environ}
    return EngineTask(
        investigation.name,
        [sys.executable, *investigation.words(folder, jobs)],
        folder / investigation.name,
        ROOT,
        passed_on() | planted | {"OMP_NUM_THREADS": "1"},
        TaskResources(jobs),
    )


def is_done(task: EngineTask) -> bool:
    """Check whether the folder holds the findings of the same command."""
    earlier, end = read_task(task.folder), read_end(task.folder)
    same = earlier is not None and list(earlier.command) == list(task.command)
    return same and end is not None and end.is_finished


def prepared(tasks: Sequence[EngineTask]) -> Iterator[EngineTask]:
    """Yield tasks, each with its file written. What an investigation has recorded already is of use to it."""
    for task in tasks:
        (task.folder / END).unlink(missing_ok=True)
        task.write()
        yield task


def altogether(path: Path, seconds: float) -> float:
    """Add what was spent on an investigation to what was spent on it before."""
    if path.exists():
        seconds += float(path.read_text())
    path.write_text(f"{seconds:.1f}\n")
    return seconds

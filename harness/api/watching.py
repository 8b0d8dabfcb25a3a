"""The recording of a training that goes on as if it were not recorded."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ..errors import CollisionError, NumdriftError, UsageError
from ..launch.attached_process import run_attached
from ..launch.batch_plan import BatchPlan, check_plan, find_script, planned
from ..launch.execute_batch import FinishedRun, close_run
from ..launch.guest_process import guest_command, interpreter
from ..launch.own_folders import began
from ..launch.prepared_runs import PreparedRun, prepare_run
from ..launch.running_process import ProcessEnd
from ..launch.tasks.started_task import StartedTask, started_task
from ..launch.training_request import TrainingRequest
from ..launch.watched_script import WatchedScript
from ..records import frames
from ..records.codec import plain
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import parse_mode
from ..records.run.step_selection import KeepParams
from ..runs.journal import Journal
from ..runs.loss_spikes import spikes_of

MODE = "watch"

MOST_SHOWN = 5
"""The number of spikes that are printed at the end."""

MOST_TRIES = 100
"""The number of folders that are tried where many trainings are started at once."""

NO_STEP = (
    "no step was recorded: a step ends with an optimizer's step(), and this process made none (ranks that a script "
    "starts itself are not seen; let torchrun start them)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest(TrainingRequest):
    """A training that is watched: what is recorded of it, and where."""

    OF_RUN: ClassVar[Sequence[str]] = ("steps", "overhead")


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """A watched training that has ended.

    exit_code: the script's; 128 + N if signal N ended it
    finished: its run, None if the run could not be written to its end
    problem: the reason for that
    """

    exit_code: int
    path: Path
    finished: FinishedRun | None
    problem: str = ""

    def lines(self, script: WatchedScript) -> list[str]:
        """Return what happened: spikes, numbers that are not finite, and a recording that stopped early."""
        if self.finished is None:
            return [f"the run in {self.path} is not complete: {self.problem}"]
        journal = self.finished.journal
        found = spikes_of(journal)
        lines = [f"{spike.text}; steps {spike.first} to {spike.last} are recorded" for spike in found[:MOST_SHOWN]]
        if len(found) > MOST_SHOWN:
            lines.append(f"and {len(found) - MOST_SHOWN} more; `numdrift runs show {self.path}` lists them")
        nonfinite = next((spike for spike in found if spike.reason == "nonfinite"), None)
        if nonfinite is not None:
            first = nonfinite.step if nonfinite.since is None else min(nonfinite.since, nonfinite.step)
            steps = f"{first}" if first == nonfinite.step else f"{first}-{nonfinite.step}"
            again = _repeated(script, parse_mode(self.finished.manifest.spec).base, steps)
            lines.append(f"`{again}` and then `numdrift runs show` name the op, if the training repeats its bits")
        if self.finished.manifest.status == "complete" and not journal.steps:
            lines.append(NO_STEP)
        lines += [str(event["text"]) for event in journal.events("notice") if event.get("broken")]
        return [*lines, f"recorded in {self.path}"] if lines else []

    def to_json(self) -> dict[str, object]:
        """Return the watched training as plain values."""
        content: dict[str, object] = {"schema": 1, "run": str(self.path), "exit_code": self.exit_code}
        if self.finished is None:
            return content | {"problem": self.problem}
        manifest, journal = self.finished.manifest, self.finished.journal
        return content | {
            "status": manifest.status,
            "message": manifest.message,
            "steps": manifest.steps,
            "spikes": [plain(spike) for spike in spikes_of(journal)],
            "notices": list(manifest.notices),
        }


def _repeated(script: WatchedScript, base: str, steps: str) -> str:
    named = ["-m", script.module] if script.module else [script.script or ""]
    arguments = ["--", *script.arguments] if script.arguments else []
    return shlex.join(["numdrift", "run", *named, *("--modes", base, "--record", "ops", "--steps", steps), *arguments])


def task_to_watch(rank: int | None) -> tuple[StartedTask | None, bool]:
    """Return the task that this command is, and whether it is the one to record. Raises UsageError."""
    task = started_task(os.environ)
    size = 1 if task is None else task.world_size
    if rank is not None and rank >= size:
        raise UsageError(
            f"--rank {rank} is not the number of a process: {size} were started, counted from 0"
            if task is not None
            else f"--rank {rank} needs a launcher that starts several processes, such as torchrun"
        )
    return task, task is None or task.rank == (rank or 0)


def plain_command(script: WatchedScript) -> list[str]:
    """Return the command that runs the script without numdrift. Raises UsageError."""
    found = script if script.script is None else replace(script, script=str(find_script(script.script)))
    return found.plain_command()


def watch(script: WatchedScript, request: WatchRequest, task: StartedTask | None) -> WatchedRun:
    """Run a script as `python` does, with this process's streams and signals, and record it in its own process.

    Only within `signals_held`. Raises UsageError before the script is started. Once it has started, a failure of the
    recording does not end it.
    """
    prepared = _prepared(script, request, task)
    python, config = interpreter(prepared.launch.spec), prepared.folder.config
    variables = {**os.environ, **({"PYTHONUNBUFFERED": "1"} if script.unbuffered else {})}
    code, seconds = run_attached(guest_command(config, python=python), variables)
    exit_code = 128 - code if code < 0 else code
    path = prepared.folder.path
    try:
        prepared = replace(prepared, manifest=replace(prepared.manifest, spec=_spec(prepared)))
        finished = close_run(prepared, ProcessEnd(code, "exited", seconds, time.time()))
    except (OSError, NumdriftError) as error:
        return WatchedRun(exit_code, path, None, str(error))
    return WatchedRun(exit_code, path, finished)


def _prepared(script: WatchedScript, request: WatchRequest, task: StartedTask | None) -> PreparedRun:
    spec = parse_mode(f"{MODE}=cpu" + (f",python={script.python}" if script.python else ""))
    of_script = replace(request, script=script.script, module=script.module, arguments=script.arguments, modes=(spec,))
    tries = 0
    while True:
        plan = _with_free_folder(
            planned(of_script, keep_params=KeepParams(0), in_place=True, pass_through=True, as_is=True, sampled=True)
        )
        try:
            check_plan(plan)
            prepared = prepare_run(plan, spec, began(plan.investigation.path))
            break
        except CollisionError:
            tries += 1
            if request.force or tries == MOST_TRIES:
                raise  # otherwise another training of a sweep was started at the same time, and has taken the folder
    if task is not None:
        text = f"this is rank {task.rank} of {task.world_size}, started by {task.launcher.name}; no other is recorded"
        frames.append_event(prepared.launch.events, "notice", step=0, text=text)
    return prepared


def _with_free_folder(plan: BatchPlan) -> BatchPlan:
    """Return the plan with a suffix that no run has: a launcher that starts a training again must not be refused."""
    number, numbered = 1, plan
    while not plan.force:
        folder = numbered.investigation.run(MODE, numbered.suffix)
        if not (folder.path.exists() or folder.pickle.exists()):
            break
        number += 1
        numbered = replace(plan, suffix=str(number))
    return numbered


def _spec(prepared: PreparedRun) -> str:
    """Return the run's mode with the device that the script has chosen."""
    adopted = Journal(prepared.folder.journal).events("adopted")
    device = next((str(event["device"]) for event in adopted if event.get("device")), "cpu")
    spec = prepared.manifest.spec
    return spec.replace(f"{MODE}=cpu", f"{MODE}={device}", 1) if device in registry.names() else spec

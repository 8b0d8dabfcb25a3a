"""Localizing a step of a pair: the other mode held at the step, a clean process that mixes the two tapes, and its result."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..launch.batch_plan import BatchPlan
from ..launch.guest_process import environment, guest_command
from ..records.experiment import Experiment
from ..records.localization_record import Localization, read_localization
from ..records.mode_spec import ModeSpec
from ..runs.step_outcomes import outcome_path, outcome_steps, read_noise_record, state_steps, tape_path
from ..tape.collectives import UNREPLAYED
from .chosen_steps import selection
from .evidence import EvidenceFolder, PairEvidence
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, Progress, repeating
from .pair_scores import spec_of
from .whole_outcomes import holds_one_against_several

AGAINST_ONE = "ops of several ranks are not replayed, so its cause is not looked for"

LOCALIZER = "numdrift.harness.localize.localizer_process"
PATIENCE = 24 * 3600.0
"""Seconds that the localizer waits for a held run: it is told when the run has ended otherwise."""

LAST_WORDS = 30.0
"""Seconds in which the localizer ends after the runs that it asked."""


@dataclass(frozen=True, slots=True)
class Task:
    """A step of a pair to localize; `threshold` is where a fault begins."""

    evidence: PairEvidence
    step: int
    threshold: float

    @property
    def folder(self) -> Path:
        return EvidenceFolder.of(self.evidence.a).path / self.experiment("localized").name

    def experiment(self, kind: str, detail: str = "") -> Experiment:
        """An experiment with this step, in the other mode."""
        a, b = self.evidence.a, self.evidence.b
        return Experiment(kind, b.path.name, a.path.name, self.step, detail)


def localize(
    laboratory: Laboratory, tasks: Sequence[Task], plan: InvestigationPlan
) -> list[Localization | None]:
    """Localize steps, some side by side, or take what is there already. None where there is no answer, which was said."""
    missing = [task for task in tasks if known(task) is None]
    for start in range(0, len(missing), laboratory.jobs):
        _together(laboratory, missing[start : start + laboratory.jobs], plan)
    return [known(task) for task in tasks]


def _together(laboratory: Laboratory, tasks: Sequence[Task], plan: InvestigationPlan) -> None:
    """Localize steps of different modes at one time."""
    runs = []
    with ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="numdrift-"))
        for number, task in enumerate(tasks):
            tapes = _reference_tape(laboratory, task, plan)
            if tapes is None:
                continue
            task.folder.mkdir(parents=True, exist_ok=True)
            socket = Path(sockets) / f"{number}.sock"
            run = _held_run(task, socket, plan)
            path = run.investigation.run(run.modes[0].name, "").path
            config = _config(task, tapes, path, socket, scripts=plan.scripts)
            stack.enter_context(_localizer(task, config, laboratory.progress))
            runs.append(run)
        if runs:
            said = ", ".join(f"step {task.step} of {task.evidence.b.manifest.label}" for task in tasks)
            laboratory.experiments(f"localizing {said}", runs)


def _held_run(task: Task, socket: Path, plan: InvestigationPlan) -> BatchPlan:
    """The run of the other mode that answers at the socket after it has taken the step from the reference's state."""
    step = selection([task.step])
    return repeating(
        task.evidence.b,
        task.experiment("held"),
        spec=_held_mode(spec_of(task.evidence.b)),
        outcomes=step,
        tapes=step,
        noise_replays=0,
        resync=state_folder(task.evidence, task.step),
        until=task.step,
        serve=socket,
        timeout=plan.timeout,
    )


def state_folder(evidence: PairEvidence, step: int) -> Path:
    """The folder of the reference's run that has the state of the step, or would have it."""
    runs = [run for run in (evidence.a_again, *evidence.kept) if run is not None]
    having = [run for run in runs if step in state_steps(run.path)]
    return (having[0] if having else runs[0]).path / "states"


def _held_mode(spec: ModeSpec) -> ModeSpec:
    """The mode that is held. Lazy tensors have no values op by op: in their place the same ops are executed on the CPU with
    the same kernels, and the localizer sees whether that gives every bit of the lazy step."""
    if spec.base == "lazy":
        return replace(spec, base="cpu", device=None, mark_step=None)
    return spec


def known(task: Task) -> Localization | None:
    """A result for the same inputs."""
    try:
        found = read_localization(task.folder)
    except JournalError:
        return None
    return found if found is not None and found.content.get("inputs") == _inputs(task) else None


def inputs_of(evidence: PairEvidence) -> dict[str, Any]:
    """What a result about a pair depends on: one for other inputs is not used again."""
    a, b = evidence.a.manifest, evidence.b.manifest
    return {"a": a.spec, "b": b.spec, "script_sha256": b.script_sha256, "arguments": list(b.arguments)}


def _inputs(task: Task) -> dict[str, Any]:
    return {**inputs_of(task.evidence), "threshold": task.threshold}


def _reference_tape(laboratory: Laboratory, task: Task, plan: InvestigationPlan) -> Path | None:
    """The folder of the run that has the reference's tape of the step, which is made where there is none."""
    a = task.evidence.a
    if holds_one_against_several(task.evidence):
        laboratory.progress.say(
            f"step {task.step} of {task.evidence.b.manifest.label} is held against one process: {AGAINST_ONE}"
        )
        return None
    for run in task.evidence.taped:
        if tape_path(run.path, task.step).exists():
            return run.path
    if (reason := _never_taped(task)) is not None:
        laboratory.progress.say(
            f"step {task.step} of {a.manifest.label}: {reason}; its cause is not looked for"
        )
        return None
    steps, taped = selection([task.step]), Experiment("taped-at", a.path.name, step=task.step)
    laboratory.experiments(
        f"tape of step {task.step}",
        [
            repeating(
                a,
                taped,
                outcomes=steps,
                tapes=steps,
                until=task.step,
                timeout=plan.timeout,
            )
        ],
    )
    made = EvidenceFolder.of(a).find(taped)
    if made is None or not tape_path(made.path, task.step).exists():
        laboratory.progress.say(
            f"step {task.step} of {a.manifest.label} has no tape: its cause is not looked for"
        )
        return None
    return made.path


def _never_taped(task: Task) -> str | None:
    """Why no step of the reference can have a tape: its ranks speak with one another in each."""
    for run in task.evidence.taped:
        for step in outcome_steps(run.path):
            reason = str((read_noise_record(run.path, step) or {}).get("reason", ""))
            if reason.endswith(UNREPLAYED):
                return reason
    return None


def _config(task: Task, reference: Path, other: Path, socket: Path, *, scripts: bool) -> dict[str, Any]:
    a, b = task.evidence.a, task.evidence.b
    threads = a.manifest.environment.get("threads")
    started = [run for run in task.evidence.started if task.step in outcome_steps(run.path)]
    return {
        "a": {
            "label": a.manifest.label,
            "tapes": str((reference / "tapes").absolute()),
            "socket": "",
            "outcome": "",
            "spec": a.manifest.spec,
        },
        "b": {
            "label": b.manifest.label,
            "tapes": str((other / "tapes").absolute()),
            "socket": str(socket),
            "outcome": str(outcome_path(started[0].path, task.step).absolute()) if started else "",
            "spec": b.manifest.spec,
        },
        "step": task.step,
        "noise": str(reference.absolute()),
        "threshold": task.threshold,
        "folder": str(task.folder.absolute()),
        "threads": threads if isinstance(threads, int) else 1,
        "patience": PATIENCE,
        "scripts": scripts,
        "inputs": _inputs(task),
    }


@contextmanager
def _localizer(task: Task, config: dict[str, Any], progress: Progress) -> Iterator[None]:
    """The localizer beside what is done in this context; what it says is passed on, and it ends with the context."""
    path = task.folder / "localizer.json"
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    command = guest_command(path, module=LOCALIZER)
    spec = spec_of(task.evidence.a)
    with (task.folder / "localizer.log").open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(spec, os.environ),
            text=True,
        )
    passing = threading.Thread(
        target=_pass_on, args=(process, progress, task.evidence.b.manifest.label), daemon=True
    )
    passing.start()
    try:
        yield
        process.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        progress.say(f"step {task.step} could not be localized: the held run ended without an answer")
    finally:
        process.kill()
        process.wait()
        passing.join()


def _pass_on(process: subprocess.Popen[str], progress: Progress, label: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        progress.say(f"  {label}: {line.rstrip()}")

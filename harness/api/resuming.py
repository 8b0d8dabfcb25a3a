"""`numdrift.resume`: what a training that is ended and started again does not restore."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from ..drift.resumed_run import first_difference, not_restored, step_of
from ..errors import NumdriftError, UsageError
from ..investigate.experiments.laboratory import Progress
from ..launch.batch_plan import BatchPlan, planned
from ..launch.execute_batch import execute
from ..launch.merged_folder import merge
from ..launch.training_request import TrainingRequest
from ..records.codec import json_text, put
from ..records.modes.mode_spec import parse_mode
from ..records.results.resumption import RESUMPTION, Resumption
from ..records.run.step_selection import StepSelection
from ..records.run.user_option import option
from ..runs.recorded_run import RecordedRun, load_run
from ..runs.run_layout import KEPT
from .api_running import listener, passive_threads

TITLES = {
    "first": "the training that is ended",
    "resumed": "the training that is started again",
    "uninterrupted": "the training without an interruption",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest(TrainingRequest):
    """A training that is ended after a step and started again."""

    OF_RUN: ClassVar[Sequence[str]] = ("max_steps",)

    at: int = option(
        0,
        "The step after which the training is ended, counted from 0. The script still does what it does between this "
        "step and the next, such as writing a checkpoint.",
        least=0,
        metavar="N",
    )
    crash: bool = option(
        False,
        "Kill the training in place of ending it, so that nothing of the script runs after the step: no `finally`, no "
        "exit handler, no buffered write.",
    )
    restart: str = option(
        "",
        "Arguments to add when the training is started again, as in --with '--resume ckpt.pt'.",
        name="restart",
        flag="--with",
        metavar="WORDS",
    )


def resume(
    script: Path | str | None = None,
    at: int = 0,
    arguments: Sequence[str] = (),
    *,
    restart: str = "",
    crash: bool = False,
    mode: str = "cpu",
    module: str | None = None,
    name: str | None = None,
    out: Path | str = "runs",
    max_steps: int | None = None,
    timeout: float | None = None,
    force: bool = False,
    progress: bool = False,
) -> Resumption:
    """End a training after step `at`, start it again, and find what it did not restore, as `numdrift resume` does.

        found = numdrift.resume("train.py", 50, ["--epochs", "2"], restart="--resume ckpt.pt")
        [(item.kind, item.text) for item in found.not_restored]

    The script is run three times in `mode`: up to the step after `at`, then again with the arguments `restart` added
    and with the files that the first run has written, and once without an interruption, for comparison. With `crash`,
    the first run is killed. Each run writes to a folder of its own, so your files do not change. `max_steps` ends the
    uninterrupted training early. The runs and `resumption.json` are in the investigation `name`.

    Raises UsageError if the training has no such step, and NumdriftError if a run fails.
    """
    options = {
        "module": module, "name": name, "out": out, "max_steps": max_steps, "timeout": timeout, "force": force,
        "at": at, "restart": restart, "crash": crash,
    }  # fmt: skip
    return resumed(ResumeRequest.of(script, [parse_mode(mode)], arguments, options), listener(progress))


def resumed(request: ResumeRequest, progress: Progress) -> Resumption:
    """Resume a training for `numdrift.resume` and `numdrift resume`."""
    (spec,) = request.modes
    at, limit = request.at, request.run.get("max_steps")
    if limit is not None and limit <= at + 1:
        raise UsageError(f"--max-steps {limit} ends the training before step {at} could be followed by another one")
    whole = planned(request)
    first_spec, again = replace(spec, name="first"), replace(spec, name="resumed")
    if request.restart:
        again = replace(again, more_args=shlex.join(shlex.split(f"{spec.more_args or ''} {request.restart}")))
    of_all = replace(whole, positions=["uninterrupted", "first", "resumed"])
    with passive_threads(), tempfile.TemporaryDirectory(prefix="numdrift-resume-") as folder:
        # The step after `at` is executed, too: what the script does between the two is then done.
        ended = replace(of_all, modes=[first_spec], max_steps=at + 2, keep_files=True, kill=request.crash)
        first = _executed(ended, progress)
        if len(first.journal.steps) < at + 2:
            raise UsageError(
                f"the training has {len(first.journal.steps)} steps, so it cannot be ended after step {at} and go on: "
                "choose a smaller --at"
            )
        if first.manifest.files is not None and not first.manifest.files.own:
            raise UsageError(
                "the files of the script cannot be kept apart from yours here, so a training that is started again "
                f"would read files of the uninterrupted one: {first.manifest.files.why}"
            )
        own = whole.place(spec)
        merge(own.folder, first.path / KEPT, Path(folder))
        place = replace(own, folder=Path(folder), beside=own.beside or own.folder)
        further = None if limit is None else max(1, limit - at - 1)
        resumed_plan = replace(of_all, modes=[again], places={again.place: place}, max_steps=further)
        second = _executed(replace(resumed_plan, states=StepSelection.of([0])), progress)
        step = step_of(first, second)
        begins = at + 1 if step is None else step
        kept = StepSelection.of([begins])
        complete = _executed(replace(of_all, modes=[replace(spec, name="uninterrupted")], states=kept), progress)
    missing = not_restored(complete, second, begins)
    if limit is not None:  # the limit, not the script, decides the number of steps
        missing = [item for item in missing if item.kind != "steps"]
    differing, compared = first_difference(complete, second, begins)
    found = Resumption(str(whole.script), str(spec), at, begins, step is not None, missing, differing, compared, "")
    found = replace(found, answer=_answer(found, request))
    put(whole.investigation.path / RESUMPTION, json_text(found, indent=1))
    return found


def _executed(plan: BatchPlan, progress: Progress) -> RecordedRun:
    """Run a plan of one mode. Raises NumdriftError if the run fails, and KeyboardInterrupt."""
    (spec,) = plan.modes
    with progress.round(TITLES[spec.name], [spec.name]) as reporter:
        result = execute(plan, reporter)
    if result.interrupted:
        raise KeyboardInterrupt
    run = load_run(result.runs[0].folder.path)
    is_killed = plan.kill and run.manifest.status == "killed"
    if (run.manifest.failed and not is_killed) or not run.journal.steps:
        why = run.manifest.message or "it recorded no step"
        log = run.path / "stderr.log"
        raise NumdriftError(f"the run {spec.name!r} ended as {run.manifest.status}: {why} (see {log})")
    return run


def _answer(found: Resumption, request: ResumeRequest) -> str:
    if found.begins_anew:
        hint = "" if request.restart else ", and say with --with which arguments resume it"
        return (
            "the second start restores nothing: its parameters are those before step 0; let the script write a "
            f"checkpoint up to step {found.at}{hint}"
        )
    where, texts = f"step {found.resumed_at}", "; ".join(item.text for item in found.not_restored)
    if found.first_differing_step is None:
        without = f"; without effect: {texts}" if texts else ""
        return (
            f"the training resumed at {where} computes what the uninterrupted one does, bit for bit, in all "
            f"{found.compared} steps{without}"
        )
    what = f"does not restore everything: {texts}" if texts else "has the same state and data, but not the same results"
    return f"the training resumed at {where} {what}; it differs from step {found.first_differing_step} on"

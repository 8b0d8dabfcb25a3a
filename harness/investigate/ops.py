"""Localizing a step of a pair: which ops compute other bits on the same inputs, and which of them make the drift.

the reference's run      has a tape of the step, or is run again for it
the other mode's run     begins in the reference's state, takes the step, and then answers at a socket
the localizer            a clean process: reads both tapes, asks the held run, writes localization.json
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..launch.guest_process import EAGER, Guest, environment
from ..records.codec import json_text
from ..records.culprit import Culprit, CulpritScript
from ..records.experiment import Experiment
from ..records.localization_record import Localization, LocalizedSide, LocalizerConfig, read_localization
from ..records.step_selection import StepSelection
from ..runs.step_outcomes import outcome_path, outcome_steps, read_noise_record, tape_path
from ..tape.op_names import UNREPLAYED
from .evidence import EvidenceFolder, PairEvidence
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, Round, begun_in, repeating
from .pair_scores import spec_of
from .question import Inquiry, QuestionAnswer

AGAINST_ONE = "ops of several ranks are not replayed, so its cause is not looked for"

LOCALIZER = "numdrift.harness.localize.localizer_process"
PATIENCE = 24 * 3600.0
"""Seconds that the localizer waits for a held run: it is told when the run has ended otherwise."""

LAST_WORDS = 30.0
"""Seconds in which the localizer ends after the runs that it asked."""


class Ops:
    """Which ops compute other bits on the same inputs, and which of them make the drift: one step of both,
    taken apart."""

    def asks(self, inquiry: Inquiry, plan: InvestigationPlan) -> bool:
        return known(inquiry) is None

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationPlan) -> None:
        for start in range(0, len(inquiries), laboratory.jobs):
            _together(laboratory, inquiries[start : start + laboratory.jobs], plan)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        """The culprits of all localized steps: one that is met in several is that of `step`, else of the first. Those
        of a step whose drift is that of a discrete choice on the edge are rounding."""
        found, notes = localizations(evidence), list[str]()
        known: dict[object, Culprit] = {}
        for one in sorted(found, key=lambda one: (one.step != step, one.is_explained(threshold))):
            for culprit in one.culprits:
                if one.is_explained(threshold):
                    culprit = replace(culprit, significance="rounding")
                # by its look, for the same cause lies in other blocks of another step
                look = (culprit.phase, culprit.op, culprit.kind, tuple(culprit.reasons))
                known.setdefault(look, culprit)
        for one in found:
            if one.reason:
                notes.append(f"step {one.step} could not be localized: {one.reason}")
            notes += [f"step {one.step}: {note}" for note in one.content.get("notes", ())]
        order: dict[str | None, int] = {"beyond-rounding": 0, "rounding": 1}
        return QuestionAnswer(sorted(known.values(), key=lambda one: order.get(one.significance, 2)), notes=notes)


def _together(laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationPlan) -> None:
    """Localize steps of different modes at one time."""
    runs = []
    with ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory(prefix="numdrift-"))
        for number, inquiry in enumerate(inquiries):
            tapes = _reference_tape(laboratory, inquiry)
            if tapes is None:
                continue
            folder_of(inquiry).mkdir(parents=True, exist_ok=True)
            socket = Path(sockets) / f"{number}.sock"  # beside the runs its name could exceed the 108 bytes of one
            spec = spec_of(inquiry.evidence.b)
            if spec.base == "lazy":
                # Lazy tensors have no values op by op: in their place the same ops are executed on the CPU with the
                # same kernels, and the localizer sees whether that gives every bit of the lazy step.
                spec = replace(spec, base="cpu", device=None, mark_step=None)
            run = begun_in(
                inquiry.states,
                inquiry.evidence.b,
                inquiry.experiment("held"),
                [inquiry.step],
                spec=spec,
                tapes=StepSelection.of([inquiry.step]),
                noise_replays=0,
                serve=socket,
            )
            path = run.investigation.run(run.modes[0].name, "").path
            config = _config(inquiry, tapes, path, socket, scripts=plan.scripts)
            stack.enter_context(_localizer(inquiry, config, laboratory))
            runs.append(run)
        if runs:
            said = ", ".join(f"step {inquiry.step} of {inquiry.evidence.b.manifest.label}" for inquiry in inquiries)
            laboratory.make(Round(f"localizing {said}", runs))


def folder_of(inquiry: Inquiry) -> Path:
    """Where what is found out about the step is written."""
    return EvidenceFolder.of(inquiry.evidence.a).path / inquiry.experiment("localized").name


def known(inquiry: Inquiry) -> Localization | None:
    """A result for the same inputs."""
    try:
        found = read_localization(folder_of(inquiry))
    except JournalError:
        return None
    return found if found is not None and found.content.get("inputs") == _inputs(inquiry) else None


def inputs_of(evidence: PairEvidence) -> dict[str, Any]:
    """What a result about a pair depends on: one for other inputs is not used again."""
    a, b = evidence.a.manifest, evidence.b.manifest
    return {"a": a.spec, "b": b.spec, "script_sha256": b.script_sha256, "arguments": list(b.arguments)}


def _inputs(inquiry: Inquiry) -> dict[str, Any]:
    return {**inputs_of(inquiry.evidence), "threshold": inquiry.threshold}


def _reference_tape(laboratory: Laboratory, inquiry: Inquiry) -> Path | None:
    """The folder of the run that has the reference's tape of the step, which is made where there is none."""
    a, step, say = inquiry.evidence.a, inquiry.step, laboratory.progress.say
    if inquiry.evidence.one_against_several:
        say(f"step {step} of {inquiry.evidence.b.manifest.label} is held against one process: {AGAINST_ONE}")
        return None
    for run in inquiry.evidence.taped:
        if tape_path(run.path, step).exists():
            return run.path
    # Where its ranks speak with one another in each step, no step of the reference can have a tape.
    for run in inquiry.evidence.taped:
        for other in outcome_steps(run.path):
            reason = str((read_noise_record(run.path, other) or {}).get("reason", ""))
            if reason.endswith(UNREPLAYED):
                say(f"step {step} of {a.manifest.label}: {reason}; its cause is not looked for")
                return None
    steps, taped = StepSelection.of([step]), Experiment("taped-at", a.path.name, step=step)
    plan = repeating(a, taped, outcomes=steps, tapes=steps, until=step)
    laboratory.make(Round(f"tape of step {step}", [plan]))
    made = EvidenceFolder.of(a).find(taped)
    if made is None or not tape_path(made.path, step).exists():
        say(f"step {step} of {a.manifest.label} has no tape: its cause is not looked for")
        return None
    return made.path


def _config(inquiry: Inquiry, reference: Path, other: Path, socket: Path, *, scripts: bool) -> LocalizerConfig:
    a, b = inquiry.evidence.a.manifest, inquiry.evidence.b.manifest
    threads = a.environment.get("threads")
    started = [run for run in inquiry.evidence.started if inquiry.step in outcome_steps(run.path)]
    outcome = str(outcome_path(started[0].path, inquiry.step).absolute()) if started else ""
    return LocalizerConfig(
        a=LocalizedSide(a.label, (reference / "tapes").absolute(), "", "", a.spec),
        b=LocalizedSide(b.label, (other / "tapes").absolute(), str(socket), outcome, b.spec),
        step=inquiry.step,
        noise=reference.absolute(),
        threshold=inquiry.threshold,
        folder=folder_of(inquiry).absolute(),
        threads=threads if isinstance(threads, int) else 1,
        patience=PATIENCE,
        scripts=scripts,
        inputs=_inputs(inquiry),
    )


@contextmanager
def _localizer(inquiry: Inquiry, config: LocalizerConfig, laboratory: Laboratory) -> Iterator[None]:
    """The localizer beside what is done in this context; what it says is passed on, and it ends with the context."""
    path = folder_of(inquiry) / "localizer.json"
    path.write_text(json_text(config, indent=1), encoding="utf-8")
    threads = environment(spec_of(inquiry.evidence.a), os.environ)  # with the threads of the reference
    guest = Guest(path, threads, module=LOCALIZER, imports=EAGER)
    progress, (reading, writing) = laboratory.progress, os.pipe()
    said = os.fdopen(reading, encoding="utf-8", errors="replace")
    try:
        with (folder_of(inquiry) / "localizer.log").open("wb") as errors:
            process = laboratory.processes.start(guest, writing, errors.fileno())
    finally:
        os.close(writing)

    def pass_on() -> None:
        for line in said:
            progress.say(f"  {inquiry.evidence.b.manifest.label}: {line.rstrip()}")

    # Read all the time, for a process whose pipe is full waits
    passing = threading.Thread(target=pass_on, daemon=True)
    passing.start()
    try:
        yield
        process.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        progress.say(f"step {inquiry.step} could not be localized: the held run ended without an answer")
    finally:
        process.kill()
        process.wait()
        passing.join()
        said.close()


def localizations(evidence: PairEvidence) -> list[Localization]:
    """What was localized of a pair, in the order of the steps, with the command that repeats it in each culprit and
    the scripts' paths from where the runs are read. What cannot be read is left out."""
    runs = shlex.join(str(run.path) for run in (evidence.a, evidence.b))
    found = []
    for folder in evidence.localized:
        try:
            one = read_localization(folder)
        except JournalError:
            continue
        if one is None:
            continue
        culprits = []
        for culprit in one.culprits:
            script = culprit.script or CulpritScript(None, why="none was written")
            if script.path is not None:
                script = replace(script, path=str(folder / Path(script.path).name))
            culprits.append(replace(culprit, command=f"numdrift localize {runs} --step {one.step}", script=script))
        found.append(replace(one, content={**one.content, "culprits": culprits}))
    return found

"""The localization of a step of a pair: the ops that compute other bits on the same inputs, and those that cause the
drift.

the runs of both modes   have tapes of the step, and their processes are workers; where that is not so, or a process has
                         died, the step is taken once more
the localizer            a clean process: reads both tapes, asks both workers, writes localization.json
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ...errors import JournalError
from ...launch.batch_plan import BatchPlan
from ...launch.guest_process import Guest, environment, preloadable
from ...records.codec import json_text
from ...records.results.culprit import SETUP, Culprit, CulpritScript
from ...records.results.experiment import Experiment
from ...records.results.localization_record import Localization, LocalizedSide, LocalizerConfig, read_localization
from ...records.run.step_selection import StepSelection
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import noise_path, outcome_path, outcome_steps, read_noise_record, tape_path
from ...tape.op_names import UNREPLAYED
from ..evidence.batches_followed import own_arguments
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_scores import spec_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, begun_in, repeating
from .executed_steps import SIDES, as_executed, executed_step, has_executed, is_to_be_executed
from .question import Inquiry, QuestionAnswer

AGAINST_ONE = "ops of several ranks are not replayed, so its cause is not looked for"

LOCALIZER = "numdrift.harness.localize.localizer_process"
PATIENCE = 24 * 3600.0
"""The seconds that a localization may take."""


class Ops:
    """A step of both modes taken apart: the ops that compute other bits on the same inputs, and those that cause the
    drift."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return (localization := known(inquiry)) is None or is_to_be_executed(inquiry, localization)

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        specs = [spec_of(run) for inquiry in inquiries for run in (inquiry.evidence.a, inquiry.evidence.b)]
        jobs = laboratory.jobs if laboratory.has_room(specs) else 1
        for start in range(0, len(inquiries), jobs):
            together = inquiries[start : start + jobs]
            _together(laboratory, [inquiry for inquiry in together if known(inquiry) is None], plan)
            # Lazy tensors may have executed something else than the recorded ops one by one.
            others = [inquiry for inquiry in together if is_to_be_executed(inquiry, known(inquiry))]
            if others:
                laboratory.make(as_executed(others))
                _together(laboratory, [inquiry for inquiry in others if has_executed(inquiry)], plan)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        """Return the culprits of all localized steps.

        A culprit of several steps is reported for `step`, else for the first of them. Where the drift of a step comes
        from a discrete choice on the edge, or from ill-conditioned ops, its culprits are rounding, except for those
        that are wrong by themselves.
        """
        localized, notes = localizations(evidence), list[str]()
        by_look: dict[object, Culprit] = {}

        def explained_last(result: Localization) -> tuple[bool, bool]:
            explained = result.is_explained(threshold) or result.is_ill_conditioned(threshold)
            return result.step != step, explained

        for localization in sorted(localized, key=explained_last):
            for culprit in localization.culprits:
                if culprit.batch or culprit.is_wrong_by_itself:  # these count in any drift
                    pass
                elif localization.hangs_on_choices(threshold) or localization.is_ill_conditioned(threshold):
                    culprit = replace(culprit, significance="rounding")
                # Data is identified by its first reason, as the same cause is in other blocks of another step.
                reasons = culprit.reasons[:1] if _is_data(culprit) else culprit.reasons
                look = (culprit.phase, culprit.op, culprit.kind, tuple(reasons))
                by_look.setdefault(look, culprit)
        for localization in localized:
            if localization.reason:
                notes.append(f"step {localization.step} could not be localized: {localization.reason}")
            notes += [f"step {localization.step}: {note}" for note in localization.content.get("notes", ())]
        order: dict[str | None, int] = {"beyond-rounding": 0, "rounding": 1}
        # An op says more than the data that it made before the step.
        ordered = sorted(
            by_look.values(),
            key=lambda candidate: (not candidate.is_proven, order.get(candidate.significance, 2), _is_data(candidate)),
        )
        return QuestionAnswer(ordered, notes=notes)


def _is_data(culprit: Culprit) -> bool:
    """Check whether the culprit is the data that a step starts from, whose values differ from step to step."""
    return culprit.kind == SETUP and culprit.op is None


def _together(laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
    """Localize steps of different modes at the same time."""
    made: dict[str, BatchPlan] = {}
    feasible = []
    for inquiry in inquiries:
        if _cannot(laboratory, inquiry):
            continue
        feasible.append(inquiry)
        for side in SIDES:
            if holding(laboratory, inquiry, side) is None:
                again = once_more(inquiry, side)
                made[again.modes[0].name] = again  # several inquiries share one reference
    if not feasible:
        return
    text = ", ".join(f"step {inquiry.step} of {inquiry.evidence.b.manifest.label}" for inquiry in feasible)
    if made:  # runs left by an earlier call have no worker any more
        laboratory.make(Round(f"processes to be asked about {text}", list(made.values())), anew=True)
    laboratory.progress.say(f"localizing {text}")
    specs = [spec_of(inquiry.evidence.b) for inquiry in feasible]
    address = str(laboratory.scripts(spec_of(feasible[0].evidence.a), specs)) if plan.scripts else ""
    with ExitStack() as stack:
        for inquiry in feasible:
            a, b = (holding(laboratory, inquiry, side) for side in SIDES)
            if a is None or b is None:
                which = inquiry.evidence.a if a is None else inquiry.evidence.b
                text = f"step {inquiry.step} of {which.manifest.label} has no tape, or no process that answers"
                laboratory.progress.say(f"{text}: its cause is not looked for")
                continue
            folder_of(inquiry).mkdir(parents=True, exist_ok=True)
            config = _config(inquiry, a, b, address)
            stack.enter_context(localizer(inquiry, config, laboratory, alone=len(feasible) == 1))


def holding(laboratory: Laboratory, inquiry: Inquiry, side: Literal["a", "b"]) -> tuple[Path, Path] | None:
    """Return the folder of the side's run that has a tape of the step, and the address of its worker; None without a
    worker."""
    evidence, step = inquiry.evidence, inquiry.step
    if side == "a":
        taped = EvidenceFolder.of(evidence.a).find(Experiment("taped-at", evidence.a.path.name, step=step))
        runs = [*evidence.taped, taped] if spec_of(evidence.a).capabilities.tapes_itself else [taped]
    else:
        runs = [evidence.forced, EvidenceFolder.of(evidence.a).find(inquiry.experiment("held"))]
    executed = EvidenceFolder.of(evidence.a).find(executed_step(inquiry, side))
    if executed is not None and tape_path(executed.path, step).exists():
        runs = [executed]
    for run in runs:
        # A failed tape is a result, too: its reason is stored in its place.
        if run is None or not (tape_path(run.path, step).exists() or noise_path(run.path, step).exists()):
            continue
        address = laboratory.workers.address_of(run.path)
        if address is not None:
            return run.path, address
    return None


def once_more(inquiry: Inquiry, side: Literal["a", "b"]) -> BatchPlan:
    """Return a plan that takes the step once more, with its tape, in a process that becomes a worker."""
    a, b, step = inquiry.evidence.a, inquiry.evidence.b, inquiry.step
    steps = StepSelection.of([step])
    spec = spec_of(a if side == "a" else b)
    is_lazy = not spec.capabilities.tapes_itself
    if is_lazy:
        # The localizer sees whether the ops on the CPU reproduce every bit of the lazy step.
        spec = spec.with_values()
    if side == "a":
        taped = Experiment("taped-at", a.path.name, step=step)
        if is_lazy:
            return begun_in(inquiry.states, a, taped, [step], spec=spec, tapes=steps, held=True)
        return repeating(a, taped, outcomes=steps, tapes=steps, until=step, held=True)
    experiment = inquiry.experiment("held")
    return begun_in(inquiry.states, b, experiment, [step], spec=spec, tapes=steps, noise_replays=0, held=True)


def folder_of(inquiry: Inquiry) -> Path:
    """Return the folder of the results about the step."""
    return EvidenceFolder.of(inquiry.evidence.a).path / inquiry.experiment("localized").name


def known(inquiry: Inquiry) -> Localization | None:
    """Return the localization of the step for the same inputs; None where there is none."""
    try:
        localization = read_localization(folder_of(inquiry))
    except JournalError:
        return None
    wanted = _inputs(inquiry)
    # A localization that has also followed the batch answers everything, should the verdict turn out to be another one.
    answers = (wanted, {**wanted, "followed": True})
    return localization if localization is not None and localization.content.get("inputs") in answers else None


def inputs_of(evidence: PairEvidence) -> dict[str, Any]:
    """Return the facts that a result about a pair depends on: a result for other inputs is not reused."""
    a, b = evidence.a.manifest, evidence.b.manifest
    return {"a": a.spec, "b": b.spec, "script_sha256": b.script_sha256, "arguments": list(b.arguments)}


def _inputs(inquiry: Inquiry) -> dict[str, Any]:
    followed = {"followed": True} if inquiry.pair.verdict == "different-setup" else {}
    return {**inputs_of(inquiry.evidence), "threshold": inquiry.threshold, **followed}


def _cannot(laboratory: Laboratory, inquiry: Inquiry) -> bool:
    """Check whether a step cannot be localized, and say why."""
    a, step, say = inquiry.evidence.a, inquiry.step, laboratory.progress.say
    if inquiry.evidence.one_against_several:
        say(f"step {step} of {inquiry.evidence.b.manifest.label} is compared with one process: {AGAINST_ONE}")
        return True
    if any(tape_path(run.path, step).exists() for run in inquiry.evidence.taped):
        return False
    # Where the ranks communicate in each step, no step of the reference can have a tape.
    for run in inquiry.evidence.taped:
        for kept_step in outcome_steps(run.path):
            reason = str((read_noise_record(run.path, kept_step) or {}).get("reason", ""))
            if reason.endswith(UNREPLAYED):
                say(f"step {step} of {a.manifest.label}: {reason}; its cause is not looked for")
                return True
    return False


def _config(
    inquiry: Inquiry, reference_side: tuple[Path, Path], mode_side: tuple[Path, Path], interpreter: str
) -> LocalizerConfig:
    """Build the configuration. `reference_side` and `mode_side` are each a folder with the tape and the address of its
    worker."""
    (folder_a, socket_a), (folder_b, socket_b) = reference_side, mode_side
    a, b = inquiry.evidence.a.manifest, inquiry.evidence.b.manifest
    threads = a.environment.get("threads")
    started = [run for run in inquiry.evidence.started if inquiry.step in outcome_steps(run.path)]
    kept = [run for run in inquiry.evidence.kept if inquiry.step in outcome_steps(run.path)]
    outcomes = [str(outcome_path(runs[0].path, inquiry.step).absolute()) if runs else "" for runs in (kept, started)]
    return LocalizerConfig(
        a=LocalizedSide(a.label, (folder_a / "tapes").absolute(), str(socket_a), outcomes[0], a.spec),
        b=LocalizedSide(b.label, (folder_b / "tapes").absolute(), str(socket_b), outcomes[1], b.spec),
        step=inquiry.step,
        noise=folder_a.absolute(),
        threshold=inquiry.threshold,
        folder=folder_of(inquiry).absolute(),
        threads=threads if isinstance(threads, int) else 1,
        interpreter=interpreter,
        inputs=_inputs(inquiry),
        own=own_arguments(inquiry.evidence) if inquiry.pair.verdict == "different-setup" else None,
    )


def expect_one(laboratory: Laboratory, reference: RecordedRun, run: RecordedRun) -> None:
    """Load the imports of a localizer in advance, where one will work by itself."""
    laboratory.processes.expect([_guest(Path(), reference, run, alone=True)])


def _guest(config: Path, reference: RecordedRun, run: RecordedRun, *, alone: bool) -> Guest:
    variables = environment(spec_of(reference), os.environ, alone=alone)  # with as many threads as the reference
    return Guest(config, variables, module=LOCALIZER, imports=preloadable(spec_of(reference), spec_of(run)))


@contextmanager
def localizer(inquiry: Inquiry, config: LocalizerConfig, laboratory: Laboratory, *, alone: bool) -> Iterator[None]:
    """Run the localizer beside this context. Its lines are passed on, and it ends with the context."""
    path = config.folder / "localizer.json"
    path.write_text(json_text(config, indent=1), encoding="utf-8")
    guest = _guest(path, inquiry.evidence.a, inquiry.evidence.b, alone=alone)
    progress, (reading, writing) = laboratory.progress, os.pipe()
    output = os.fdopen(reading, encoding="utf-8", errors="replace")
    try:
        with (config.folder / "localizer.log").open("wb") as errors:
            process = laboratory.processes.start(guest, writing, errors.fileno())
    finally:
        os.close(writing)

    def pass_on() -> None:
        for line in output:
            progress.say(f"  {inquiry.evidence.b.manifest.label}: {line.rstrip()}")

    # Read continuously, as a process whose pipe is full waits.
    passing = threading.Thread(target=pass_on, daemon=True)
    passing.start()
    try:
        yield
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        progress.say(f"step {config.step} could not be localized: no answer came in {PATIENCE:.0f} s")
    finally:
        process.kill()
        process.wait()
        passing.join()
        output.close()


def localizations(evidence: PairEvidence) -> list[Localization]:
    """Return the localizations of a pair in the order of the steps.

    Each culprit has the command that repeats it, and each script its path from where the runs are read. Localizations
    that cannot be read are left out.
    """
    runs = shlex.join(str(run.path) for run in (evidence.a, evidence.b))
    localized = []
    for folder in evidence.localized:
        try:
            localization = read_localization(folder)
        except JournalError:
            continue
        if localization is None:
            continue
        culprits = []
        for culprit in localization.culprits:
            script = culprit.script or CulpritScript(None, why="none was written")
            if script.path is not None:
                script = replace(script, path=str(folder / Path(script.path).name))
            culprits.append(
                replace(culprit, command=f"numdrift localize {runs} --step {localization.step}", script=script)
            )
        localized.append(replace(localization, content={**localization.content, "culprits": culprits}))
    return localized

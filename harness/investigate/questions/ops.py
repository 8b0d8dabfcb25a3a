"""The localization of a step of a pair: the ops that compute different bits on the same inputs, and those that cause
the drift.

the runs of both modes   have tapes of the step, and their processes are workers; if a tape is missing, or
                         a process has died, the step is executed once more
the localizer            a clean process: reads both tapes, asks both workers, writes localization.json
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import JournalError
from ...launch.batch_plan import BatchPlan
from ...records.results.culprit import SETUP, Culprit
from ...records.results.localization_record import Localization, LocalizedSide, LocalizerConfig, read_localization
from ...records.run.run_request import NOISE_REPLAYS
from ...runs.step_outcomes import outcome_path, outcome_steps, read_noise_record, tape_path
from ...tape.op_names import UNREPLAYED
from ..evidence.batches_followed import own_arguments
from ..evidence.kept_repetition import controls_of
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_localizations import inputs_of, localizations
from ..evidence.pair_scores import spec_of
from ..evidence.split_batches import split_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round
from ..experiments.tapes_beside import measure_tape, settle_tape
from .executed_steps import SIDES, as_executed, has_executed, is_to_be_executed
from .localizer import localizer
from .question import Inquiry, QuestionAnswer
from .step_workers import holding, once_more

AGAINST_ONE = "ops of several ranks are not replayed, so no cause is looked for"


class Ops:
    """A step of both modes, taken apart: the ops that compute different bits on the same inputs, and those that cause
    the drift."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        split = split_of(inquiry.evidence)
        if split is not None and split.is_same_data:
            return False  # the calls of a part and of the whole have no common inputs
        return is_lacking(inquiry, plan) or is_to_be_executed(inquiry, localization_of(inquiry))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        specs = [spec_of(run) for inquiry in inquiries for run in (inquiry.evidence.a, inquiry.evidence.b)]
        jobs = laboratory.jobs if laboratory.has_room(specs) else 1
        for start in range(0, len(inquiries), jobs):
            together = inquiries[start : start + jobs]
            _together(laboratory, [inquiry for inquiry in together if is_lacking(inquiry, plan)], plan)
            # The graphs of lazy tensors may compute values that differ from those of the recorded ops, executed one by
            # one.
            others = [inquiry for inquiry in together if is_to_be_executed(inquiry, localization_of(inquiry))]
            if others:
                laboratory.make(as_executed(others))
                _together(laboratory, [inquiry for inquiry in others if has_executed(inquiry)], plan)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        """Return the culprits of all localized steps.

        A culprit of several steps is reported for `step`, else for the first step whose drift is not explained, else
        for the first of all. If the drift of a step comes from a discrete choice next to its edge, or from
        ill-conditioned ops, the step's culprits count as rounding, except those that are wrong by themselves.
        """
        localized, notes = localizations(evidence), list[str]()
        by_identity: dict[object, Culprit] = {}

        def explained_last(result: Localization) -> tuple[bool, bool]:
            explained = result.is_explained(threshold) or result.is_ill_conditioned(threshold)
            return result.step != step, explained

        for localization in sorted(localized, key=explained_last):
            for culprit in localization.culprits:
                if culprit.batch or culprit.is_wrong_by_itself:  # these count in any drift
                    pass
                elif localization.hangs_on_choices(threshold) or localization.is_ill_conditioned(threshold):
                    culprit = replace(culprit, significance="rounding")
                # Identify data by its first reason: the same cause affects different blocks in different steps.
                reasons = culprit.reasons[:1] if _is_data(culprit) else culprit.reasons
                identity = (culprit.phase, culprit.op, culprit.kind, tuple(reasons))
                by_identity.setdefault(identity, culprit)
        for localization in localized:
            if localization.reason:
                notes.append(f"step {localization.step} could not be localized: {localization.reason}")
            notes += [f"step {localization.step}: {note}" for note in localization.content.get("notes", ())]
        order: dict[str | None, int] = {"beyond-rounding": 0, "rounding": 1}
        # An op is more informative than the data that it computed before the step.
        ordered = sorted(
            by_identity.values(),
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
            if holding(laboratory, inquiry, side) is None and not (side == "a" and laboratory.frozen):
                again = once_more(inquiry, side)
                made[again.modes[0].name] = again  # several inquiries share one reference
    if not feasible:
        return
    text = ", ".join(f"step {inquiry.step} of {inquiry.evidence.b.manifest.label}" for inquiry in feasible)
    if made:  # runs left by an earlier call have no worker any more
        laboratory.make(Round(f"workers for {text}", list(made.values())), anew=True)
    laboratory.progress.say(f"localizing {text}")
    specs = [spec_of(inquiry.evidence.b) for inquiry in feasible]
    address = str(laboratory.scripts(spec_of(feasible[0].evidence.a), specs)) if plan.scripts else ""
    with ExitStack() as stack:
        for inquiry in feasible:
            a, b = (holding(laboratory, inquiry, side) for side in SIDES)
            if a is None or b is None:
                which = inquiry.evidence.a if a is None else inquiry.evidence.b
                text = f"step {inquiry.step} of {which.manifest.label} has no tape, or its worker does not answer"
                laboratory.progress.say(f"{text}: its cause is not looked for")
                continue
            _settle(laboratory, inquiry, {"a": a[0], "b": b[0]})
            # The culprits of the step are judged by its own noise, which the verdict may not have needed.
            measure_tape(laboratory, a[0], inquiry.step)
            folder_of(inquiry).mkdir(parents=True, exist_ok=True)
            config = replace(_config(inquiry, a, b, address), seconds=laboratory.seconds_left)
            stack.enter_context(localizer(inquiry, config, laboratory, alone=len(feasible) == 1))


def _settle(laboratory: Laboratory, inquiry: Inquiry, folders: Mapping[str, Path]) -> None:
    """Settle the tapes of the step in these folders, for the modes that do not repeat."""
    for side, (_, _, control) in controls_of(inquiry.evidence).items():
        if not control.repeatable:
            settle_tape(laboratory, folders[side], inquiry.step, NOISE_REPLAYS if side == "a" else 0)


def folder_of(inquiry: Inquiry) -> Path:
    """Return the folder of the results about the step."""
    return EvidenceFolder.of(inquiry.evidence.a).path / inquiry.experiment("localized").name


def localization_of(inquiry: Inquiry) -> Localization | None:
    """Return the localization of the step for the same inputs; None if there is none."""
    try:
        localization = read_localization(folder_of(inquiry))
    except JournalError:
        return None
    wanted = _inputs(inquiry)
    # A localization that has also followed the batch can be used under any verdict.
    answers = (wanted, {**wanted, "followed": True})
    return localization if localization is not None and localization.content.get("inputs") in answers else None


def is_lacking(inquiry: Inquiry, plan: InvestigationRequest) -> bool:
    """Check whether the step has no localization, or one that ran out of time while the plan now has no limit."""
    localization = localization_of(inquiry)
    return localization is None or (localization.was_cut_short and plan.budget == math.inf)


def _inputs(inquiry: Inquiry) -> dict[str, Any]:
    followed = {"followed": True} if inquiry.pair.verdict == "different-setup" else {}
    return {**inputs_of(inquiry.evidence), "threshold": inquiry.threshold, **followed}


def _cannot(laboratory: Laboratory, inquiry: Inquiry) -> bool:
    """Return True, and report the reason, if a step cannot be localized."""
    a, step, say = inquiry.evidence.a, inquiry.step, laboratory.progress.say
    if inquiry.evidence.one_against_several:
        say(f"step {step} of {inquiry.evidence.b.manifest.label} is compared with one process: {AGAINST_ONE}")
        return True
    if any(tape_path(run.path, step).exists() for run in inquiry.evidence.taped):
        return False
    # If the ranks communicate in each step, no step of the reference can have a tape.
    for run in inquiry.evidence.taped:
        for kept_step in outcome_steps(run.path):
            reason = str((read_noise_record(run.path, kept_step) or {}).get("reason", ""))
            if reason.endswith(UNREPLAYED):
                say(f"step {step} of {a.manifest.label}: {reason}; its cause is not looked for")
                return True
    return False


def _config(
    inquiry: Inquiry, reference_side: tuple[Path, Path | None], mode_side: tuple[Path, Path | None], interpreter: str
) -> LocalizerConfig:
    """Build the configuration. Each side is the folder of the run that has the tape, and the address of its worker, if
    it has one."""
    (folder_a, socket_a), (folder_b, socket_b) = reference_side, mode_side
    a, b = inquiry.evidence.a.manifest, inquiry.evidence.b.manifest
    threads = a.environment.get("threads")
    started = [run for run in inquiry.evidence.started if inquiry.step in outcome_steps(run.path)]
    kept = [run for run in inquiry.evidence.kept if inquiry.step in outcome_steps(run.path)]
    outcomes = [str(outcome_path(runs[0].path, inquiry.step).absolute()) if runs else "" for runs in (kept, started)]
    return LocalizerConfig(
        a=LocalizedSide(a.label, (folder_a / "tapes").absolute(), str(socket_a or ""), outcomes[0], a.spec),
        b=LocalizedSide(b.label, (folder_b / "tapes").absolute(), str(socket_b or ""), outcomes[1], b.spec),
        step=inquiry.step,
        noise=folder_a.absolute(),
        threshold=inquiry.threshold,
        folder=folder_of(inquiry).absolute(),
        threads=threads if isinstance(threads, int) else 1,
        interpreter=interpreter,
        inputs=_inputs(inquiry),
        own=own_arguments(inquiry.evidence) if inquiry.pair.verdict == "different-setup" else None,
    )

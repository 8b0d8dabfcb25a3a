"""The preparation of two scripts: everything before they first call a model. If their first batches, their initial
values or the states of a generator differ, both scripts are executed again up to that call. The tapes begin at the
scripts' first lines.

    data = torch.load("waves.pt") / 256     argument 0 differs: div (train.py:8) receives other=256 in bad, 255 in cpu
    model, mask = Net(), causal(16)
    for x in data: model(x, mask)           the tapes end here
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import JournalError
from ...launch.batch_plan import BatchPlan
from ...records.results.culprit import RECOMPUTED, SETUP, Culprit
from ...records.results.experiment import Experiment
from ...records.results.findings import PairFindings
from ...records.results.localization_record import Localization, LocalizedSide, LocalizerConfig, read_localization
from ...runs.recorded_run import RecordedRun
from ..evidence.batches_followed import own_arguments
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_localizations import inputs_of
from ..evidence.pair_scores import spec_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, repeating
from .localizer import localizer
from .question import Inquiry, QuestionAnswer

FOLLOWED = ("batch", "generator", "initial")
"""Kinds of set-up differences that come from the preparation if they exist from step 0 on."""


class Preparation:
    """The origin of different first batches or initial values that no op of a step causes."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        evidence = inquiry.evidence
        alone = evidence.a.manifest.is_one_process and evidence.b.manifest.is_one_process
        localization = _localization(evidence)
        is_followed = localization is not None and localization.content.get("inputs") == inputs_of(evidence)
        return _is_unplaced(inquiry.pair) and alone and not is_followed

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        runs = {run.path: run for pending in inquiries for run in (pending.evidence.a, pending.evidence.b)}
        laboratory.make(Round("the preparation before the first step", [_once_more(run) for run in runs.values()]))
        for inquiry in inquiries:
            a, b = inquiry.evidence.a, inquiry.evidence.b
            made = [EvidenceFolder.of(a).find(Experiment("prepared", run.path.name)) for run in (a, b)]
            if made[0] is None or made[1] is None:
                continue
            folder = _folder(inquiry.evidence)
            folder.mkdir(parents=True, exist_ok=True)
            sides = [
                LocalizedSide(run.manifest.label, (prepared.path / "tapes").absolute(), "", "", run.manifest.spec)
                for run, prepared in zip((a, b), (made[0], made[1]), strict=True)
            ]
            threads = a.manifest.environment.get("threads")
            config = LocalizerConfig(
                a=sides[0],
                b=sides[1],
                step=0,
                noise=made[0].path.absolute(),
                threshold=0.0,
                folder=folder.absolute(),
                threads=threads if isinstance(threads, int) else 1,
                interpreter="",
                inputs=inputs_of(inquiry.evidence),
                own=own_arguments(inquiry.evidence),
                prepared=True,
            )
            with localizer(inquiry, config, laboratory, alone=True):
                pass

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        localization = _localization(evidence)
        if localization is None:
            return QuestionAnswer()
        notes = [f"before step 0: {note}" for note in localization.content.get("notes", ())]
        if localization.reason:
            notes.append(f"the preparation before the first step could not be followed: {localization.reason}")
        return QuestionAnswer(localization.culprits, notes=notes)


def _is_unplaced(pair: PairFindings) -> bool:
    """Check whether there is a difference from step 0 on that no known op causes."""
    if pair.verdict != "different-setup" or any(culprit.local_rule == RECOMPUTED for culprit in pair.culprits):
        return False
    first = next((culprit for culprit in pair.culprits if culprit.kind == SETUP and culprit.proof is None), None)
    placed = any(culprit.batch and culprit.op is not None and _concerns(culprit, first) for culprit in pair.culprits)
    return first is not None and first.what in FOLLOWED and first.step == 0 and not placed


def _concerns(culprit: Culprit, first: Culprit | None) -> bool:
    return first is None or first.what != "batch" or first.name in (culprit.batch or ())


def _once_more(run: RecordedRun) -> BatchPlan:
    made = Experiment("prepared", run.path.name)
    return repeating(run, made, spec=spec_of(run).with_values(), prepares=True, until=0, record="losses")


def _folder(evidence: PairEvidence) -> Path:
    made = Experiment("traced", evidence.b.path.name, evidence.a.path.name)
    return EvidenceFolder.of(evidence.a).path / made.name


def _localization(evidence: PairEvidence) -> Localization | None:
    try:
        return read_localization(_folder(evidence))
    except JournalError:
        return None

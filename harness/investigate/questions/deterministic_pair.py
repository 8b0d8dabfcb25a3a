"""The same pair in deterministic modes, if a mode does not repeat and no cause of its fault was found.

Both modes are trained anew with `deterministic=on` and investigated like any other pair, in a folder of their own:

    cpu, compile                       beyond-rounding, compile does not repeat, no cause
    the same with deterministic=on     beyond-rounding, both repeat: its causes are those of the first pair, too
                                       rounding: the fault comes with the kernels that do not repeat
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...launch.batch_plan import BatchPlan
from ...records.codec import Unreadable
from ...records.modes.mode_spec import ModeSpec
from ...records.modes.setting_keys import device_of, refused_setting
from ...records.results.culprit import NONDETERMINISM
from ...records.results.findings import INVESTIGATION, WITHIN, Findings, PairFindings, usable_content
from ...runs.run_layout import InvestigationFolder
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_scores import spec_of, spreads_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, trained_anew
from .question import Inquiry, QuestionAnswer, proven

ON = "on"


class DeterministicPair:
    """The causes that a pair has in deterministic modes."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return is_wanted(inquiry) and _findings(inquiry.evidence) is None

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        for inquiry in inquiries:
            evidence = inquiry.evidence
            laboratory.progress.say(
                f"no cause of {inquiry.pair.b} is proven, and a mode does not repeat: both are trained again with "
                "deterministic=on, and investigated"
            )
            try:
                runs = laboratory.free(deterministic_batch(evidence))
            except UsageError as error:  # an earlier attempt has failed
                laboratory.progress.say(str(error))
                continue
            further = replace(plan, step=None, steps=None, confirm=False, envelope=0, seeds=0, partition_bisect=False)
            assert laboratory.investigate is not None
            laboratory.investigate(runs, further, laboratory)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        pair = _findings(evidence)
        if pair is None:
            return QuestionAnswer()
        folder, b = folder_of(evidence), pair.b
        trained = f"{b} and {pair.a} were trained again with deterministic=on ({folder})"
        repeats = all(control.get("repeatable") for control in pair.controls.values())
        if not repeats:
            return QuestionAnswer(notes=[f"{trained}: they do not repeat their bits there either"])
        if pair.verdict != "beyond-rounding":
            found = f"there both repeat, and the verdict is {pair.verdict}"
            why = (
                "the fault comes with a kernel that does not repeat"
                if pair.verdict in WITHIN
                else "that decides nothing"
            )
            return QuestionAnswer(sentences=[f"{trained}: {found}; {why}"])
        causes = proven(pair.verdict, pair.culprits)
        if not causes:
            return QuestionAnswer(sentences=[f"{trained}: there both repeat, and no cause is proven either"])
        found = "there both repeat, the drift is still beyond rounding, and its causes are proven"
        return QuestionAnswer(instead=causes, sentences=[f"{trained}: {found}; they are those named here"])


def is_wanted(inquiry: Inquiry) -> bool:
    """Check whether a pair's causes are to be searched for in deterministic modes.

    They are if its drift is beyond rounding, no cause of it is proven, and a mode does not repeat that can be made to.
    """
    pair, evidence = inquiry.pair, inquiry.evidence
    causes = [culprit for culprit in proven(pair.verdict, pair.culprits) if culprit.kind != NONDETERMINISM]
    spreads = [spread for spread in spreads_of(evidence).values() if not spread.by_recording]
    if pair.verdict != "beyond-rounding" or causes or not spreads:
        return False
    return any(_deterministic(spec_of(run)) is not None for run in (evidence.a, evidence.b))


def _deterministic(spec: ModeSpec) -> ModeSpec | None:
    """Return a mode with `deterministic=on`; None if it has the key already, or if the key has no effect there."""
    values: Mapping[str, Any] = {"deterministic": ON}
    if spec.deterministic is not None or refused_setting(values, device_of(spec.base, spec.device)) is not None:
        return None
    return replace(spec, deterministic=ON)


def folder_of(evidence: PairEvidence) -> Path:
    """Return the folder of the investigation of the deterministic modes."""
    return EvidenceFolder.of(evidence.a).path / f"deterministic-{evidence.b.path.name}"


def deterministic_batch(evidence: PairEvidence) -> BatchPlan:
    """Return a plan that trains both modes of a pair with `deterministic=on`."""
    specs = [spec_of(run) for run in (evidence.a, evidence.b)]
    modes = [_deterministic(spec) or spec for spec in specs]
    return trained_anew(evidence.a, modes=modes, investigation=InvestigationFolder(folder_of(evidence)))


def _findings(evidence: PairEvidence) -> PairFindings | None:
    content = usable_content(folder_of(evidence) / INVESTIGATION)
    with suppress(Unreadable):
        return None if content is None else Findings.from_json(content).pairs[0]
    return None

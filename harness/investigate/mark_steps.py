"""Whether a lazy mode's drift comes from where its graphs are cut: the same step with other mark-step policies.

A lazy graph is executed when something needs its values: a mark_step, a number that is read, or an op that falls back
to the CPU. What is not kept then is executed again by the next graph, and where that draws random numbers it draws
others. So the policy is a swap: where another one takes the drift away, the re-execution was the cause.

The tape of what was executed shows which op that is (`ops`): then the policy is a remedy of that culprit. Where there
is no such tape, it is a culprit itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..drift.step_noise import Noise, read_noise
from ..drift.step_score import score_step
from ..drift.verdict import worst_of
from ..errors import NumdriftError
from ..graphs.run_graphs import RunGraphs
from ..records.culprit import AGAIN, MARK_STEP, Culprit
from ..records.localization_record import Localization, write_localization
from ..records.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun
from ..runs.step_outcomes import outcome_steps, read_outcome
from .evidence import EvidenceFolder, PairEvidence
from .executed_steps import is_of_another_step
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, Round, begun_in
from .ops import known
from .pair_scores import spec_of
from .question import Inquiry, QuestionAnswer, mode_culprit

OP_BY_OP = "every op executed at once"
"""What takes the place of a policy that helps: the stand-in on the CPU."""

POLICIES = ("phase", "step", "off")
"""`auto` cuts as `phase` does."""

LAST_UNCUT = 4
"""The last step that is tried without any cut. All steps before it are then one graph, of which each value that is read
executes everything once more: in the tenth step of a transformer of two layers whose products are sums that took 20 s
a step, and 14 GB."""


class MarkSteps:
    """Whether another policy takes the drift away: its culprit is then added to the localization of the step."""

    def asks(self, inquiry: Inquiry, plan: InvestigationPlan) -> bool:
        """Whether lazy tensors gave from the same batch what their ops one by one do not, or executed one again."""
        found = known(inquiry)
        is_lazy = spec_of(inquiry.evidence.b).base == "lazy"
        given_otherwise = any(one.batch for one in inquiry.pair.culprits)
        if not is_lazy or given_otherwise or found is None or "policies" in found.content:
            return False
        return is_of_another_step(found, inquiry) or any(map(_is_again, found.culprits))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationPlan) -> None:
        for inquiry in inquiries:
            found = known(inquiry)
            if found is not None:
                _try_policies(laboratory, inquiry, found)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        return QuestionAnswer()  # its culprit stands in the localization, and Ops tells it


def _try_policies(laboratory: Laboratory, inquiry: Inquiry, found: Localization) -> None:
    """Try the other policies, and add the culprit to the localization where one of them takes the drift away."""
    a, b, step = inquiry.evidence.a, inquiry.evidence.b, inquiry.step
    own = spec_of(b).mark_step or "auto"
    known_already = {own, "phase"} if own == "auto" else {own}
    others = [one for one in POLICIES if one not in known_already and (one != "off" or step <= LAST_UNCUT)]
    folder = EvidenceFolder.of(a)
    plans = []
    for policy in (own, *others):
        spec = replace(spec_of(b), mark_step=policy)
        graphs = {"graphs": policy == own, "graph_steps": StepSelection.of([step])}
        plans.append(begun_in(inquiry.states, b, inquiry.experiment("cut", policy), [step], spec=spec, **graphs))
    laboratory.make(Round(f"mark-step policies in step {step} of {b.manifest.label}", plans))
    # Each is held against the same ops executed one by one on the CPU, infinitely far where it did not get there.
    stand_in = folder.find(inquiry.experiment("held"))
    reference = next((one for one in inquiry.evidence.taped if step in outcome_steps(one.path)), None)
    if stand_in is None:
        return
    scores = dict.fromkeys((own, *others), math.inf)
    for policy in scores:
        run = folder.find(inquiry.experiment("cut", policy))
        if run is not None and reference is not None and step in outcome_steps(run.path):
            noise = read_noise(reference.path, step) or Noise(step, 0, {})
            scored = score_step(read_outcome(stand_in.path, step), read_outcome(run.path, step), noise)
            scores[policy] = worst_of([scored])
    before = scores[own]
    if not before:
        return
    best = min(others, key=lambda policy: scores[policy])
    if any(map(_is_again, found.culprits)):
        remedy = f"mark_step={best}" if scores[best] <= before / 2 else None
        culprits = [replace(one, swapped=remedy) if _is_again(one) else one for one in found.culprits]
        if remedy:
            said = f"with {remedy} nothing is executed again that counts: z {scores[best]:.3g} in place of {before:.3g}"
            found = replace(found, content={**found.content, "notes": [*found.content.get("notes", ()), said]})
        write_localization(found.path, {**found.content, "culprits": culprits, "policies": scores})
        return
    if scores[best] > inquiry.threshold:
        # Cuts that every policy makes are a cause only where something is drawn again. Lazy mode has other last bits
        # than its ops one by one on some processors, and a kernel of few bits magnifies these, whatever is cut.
        states = [one.generators["torch"] for one in a.journal.steps if "torch" in one.generators]
        if len(states) > 1 and len({*states}) == 1:  # nothing is drawn; of fewer states nobody knows
            return
        best, scores[OP_BY_OP] = OP_BY_OP, 0.0
    if scores[best] > before / 2:  # the cuts are not what makes the step another
        return
    culprit = _culprit(inquiry, own, best, scores, _cuts(folder.find(inquiry.experiment("cut", own))))
    content = {**found.content, "culprits": [culprit, *found.culprits], "policies": scores}
    write_localization(found.path, content)


def _is_again(culprit: Culprit) -> bool:
    return any(one.startswith(AGAIN) for one in culprit.reasons)


def _cuts(run: RecordedRun | None) -> Counter[tuple[str, str]]:
    """The ops that fell back to the CPU, with their lines, from the captured graphs."""
    found: Counter[tuple[str, str]] = Counter()
    if run is None:
        return found
    try:
        for one in RunGraphs(run).executions:
            if one.cut is not None and one.cut.get("reason") == "fallback":
                found[one.cut.get("op", ""), one.cut.get("source", "")] += 1
    except NumdriftError:
        return found
    return found


def _culprit(
    inquiry: Inquiry, own: str, best: str, scores: Mapping[str, float], cuts: Counter[tuple[str, str]]
) -> Culprit:
    before, after = scores[own], scores[best]
    fallen = list(cuts)
    ops = list(dict.fromkeys(op for op, _ in fallen))
    why = (
        f"{', '.join(ops)} {'falls' if len(ops) == 1 else 'fall'} back to the CPU, which executes the graph so far"
        if ops
        else "a graph is cut"
    )
    text = f"{why}, and what was not kept is executed again"
    a, b = inquiry.evidence.a.manifest.label, inquiry.evidence.b.manifest.label
    return mode_culprit(
        kind=MARK_STEP,
        step=inquiry.step,
        name=why,
        reasons=[text],
        before=before,
        after=after,
        threshold=inquiry.threshold,
        why=f"mark_step={own} against {best if best == OP_BY_OP else f'mark_step={best}'}",
        op=ops[0] if ops else None,
        source=fallen[0][1] if fallen else None,
        ops={"a": [], "b": ops},
        sites=sum(cuts.values()),
        policy={a: None, b: own, "swapped": best},
        swapped=None if best == OP_BY_OP else f"mark_step={best}",
    )

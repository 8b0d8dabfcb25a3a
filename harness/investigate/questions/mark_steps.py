"""A step executed with different mark-step policies, to find out whether the cuts of its graphs make a lazy mode drift.

A lazy graph is executed when something needs its values: a mark_step, a number that is read, or an op that falls back
to the CPU. Values that this graph does not keep are computed again by the next graph. An op that draws random numbers
draws different ones when it is executed again. So the policy is a swap: if a different policy removes the drift, the
re-execution was the cause.

A tape of the executed graphs shows which op was executed again. The question `ops` names this op as the culprit, and
the policy is its remedy. Without such a tape, the policy itself is the culprit. It is named after the ops that draw
random numbers and are part of several graphs of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...drift.step_noise import Noise, read_noise
from ...drift.step_score import score_step
from ...drift.verdict import worst_of
from ...errors import NumdriftError
from ...graphs.run_graphs import RunGraphs
from ...records.results.culprit import AGAIN, MARK_STEP, Culprit
from ...records.results.localization_record import Localization, write_localization
from ...records.run.step_selection import StepSelection
from ...records.tools.graph_record import Node
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import outcome_steps, read_outcome
from ...tape.op_names import draws
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_scores import spec_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, begun_in
from .executed_steps import is_of_another_step
from .ops import localization_of
from .question import Inquiry, QuestionAnswer, mode_culprit
from .setting_axes import with_setting

BY_ITSELF = "execute=op"
"""The key of a mode that executes each op once, when it is called. It is tried if no policy removes the drift."""

ON_CPU = "each op executed by itself on the CPU"
"""The replacement of the policy if BY_ITSELF does not help either: the execution with which the step is compared."""

POLICIES = ("phase", "step", "off")
"""The policies to try; `auto` cuts where `phase` does."""

LAST_UNCUT = 4
"""The last step that is tried without any cut.

Without a cut, all steps up to this one are one graph, and each value that is read executes the whole graph again. In
a transformer of two layers whose matrix products are written as sums, the tenth step took 20 s and 14 GB.
"""


class MarkSteps:
    """The question that executes the step with different policies. If one of them removes the drift, a culprit is added
    to the step's localization."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        """Check whether lazy tensors executed an op again, or whether their results from the same batch differ from
        those of their ops executed one by one."""
        localization = localization_of(inquiry)
        is_lazy = not spec_of(inquiry.evidence.b).capabilities.tapes_itself
        batch_differs = any(culprit.batch for culprit in inquiry.pair.culprits)
        if not is_lazy or batch_differs or localization is None or "policies" in localization.content:
            return False
        return is_of_another_step(localization, inquiry) or any(map(_is_again, localization.culprits))

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        for inquiry in inquiries:
            localization = localization_of(inquiry)
            if localization is not None:
                _try_policies(laboratory, inquiry, localization)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        return QuestionAnswer()  # the localization has its culprit, and Ops reports it


def _try_policies(laboratory: Laboratory, inquiry: Inquiry, localization: Localization) -> None:
    """Try the other policies, and add the culprit to the localization if one of them removes the drift."""
    b, step = inquiry.evidence.b, inquiry.step
    own = spec_of(b).mark_step or "auto"
    same_cuts = {own, "phase"} if own == "auto" else {own}
    others = [policy for policy in POLICIES if policy not in same_cuts and (policy != "off" or step <= LAST_UNCUT)]
    plans = []
    for policy in (own, *others):
        spec = replace(spec_of(b), mark_step=policy)
        graphs = {"graphs": policy == own, "graph_steps": StepSelection.of([step])}
        plans.append(begun_in(inquiry.states, b, inquiry.experiment("cut", policy), [step], spec=spec, **graphs))
    laboratory.make(Round(f"mark-step policies in step {step} of {b.manifest.label}", plans))
    scores = {policy: _score(inquiry, policy) for policy in (own, *others)}
    before = scores[own]
    if not before:  # nothing to compare with, or no drift
        return
    best, is_named = min(others, key=lambda policy: scores[policy]), any(map(_is_again, localization.culprits))
    if scores[best] > (before / 2 if is_named else inquiry.threshold):
        if not is_named and not _may_draw(inquiry.evidence.a):
            return
        plan = begun_in(
            inquiry.states, b, inquiry.experiment("cut", "op"), [step], spec=with_setting(spec_of(b), BY_ITSELF)
        )
        laboratory.make(Round(f"each op of step {step} of {b.manifest.label} executed by itself", [plan]))
        best, scores[BY_ITSELF] = BY_ITSELF, _score(inquiry, "op")
        if scores[best] > min(inquiry.threshold, before / 2) and not is_named:
            if not _own_cuts(inquiry, own)[1]:  # nothing is drawn again, so the cuts are not known to be the cause
                return
            best, scores[ON_CPU] = ON_CPU, 0.0
    _write(inquiry, localization, own, best, scores)


def _score(inquiry: Inquiry, policy: str) -> float:
    """Score the step with a policy against the same ops executed one by one on the CPU.

    The score is infinite if the run did not finish the step, and 0 if the ops were not executed one by one.
    """
    folder, step = EvidenceFolder.of(inquiry.evidence.a), inquiry.step
    stand_in, run = folder.find(inquiry.experiment("held")), folder.find(inquiry.experiment("cut", policy))
    reference = next((taped for taped in inquiry.evidence.taped if step in outcome_steps(taped.path)), None)
    if stand_in is None:
        return 0.0
    if run is None or reference is None or step not in outcome_steps(run.path):
        return math.inf
    noise = read_noise(reference.path, step) or Noise(step, 0, {})
    return worst_of([score_step(read_outcome(stand_in.path, step), read_outcome(run.path, step), noise)])


def _may_draw(reference: RecordedRun) -> bool:
    """Check whether the script may draw random numbers: its generator's state changes, or too few states are known.

    Cuts that every policy makes are a cause only if something is drawn again. On some processors, lazy mode differs in
    the last bits from its ops executed one by one, and a low-precision kernel magnifies this difference, whatever the
    cuts are.
    """
    states = [record.generators["torch"] for record in reference.journal.steps if "torch" in record.generators]
    return len(states) < 2 or len({*states}) > 1


def _write(inquiry: Inquiry, localization: Localization, own: str, best: str, scores: Mapping[str, float]) -> None:
    """Add the culprit, or the remedy of the culprits that are named already, to the localization."""
    before, spec = scores[own], spec_of(inquiry.evidence.b)
    helps = scores[best] <= before / 2
    remedy = _setting(best) if helps else None
    if any(map(_is_again, localization.culprits)):
        culprits = [
            replace(culprit, swapped=remedy) if _is_again(culprit) else culprit for culprit in localization.culprits
        ]
    elif helps:
        culprits = [_culprit(inquiry, own, best, scores), *localization.culprits]
    else:  # the cuts do not change the step
        return
    content = {**localization.content, "culprits": culprits, "policies": scores}
    if remedy:
        effect = f"with {remedy}, nothing that matters is executed again: z {scores[best]:.3g} instead of {before:.3g}"
        note = f'{effect} (--mode "{with_setting(spec, remedy)}")'
        content["notes"] = [*localization.content.get("notes", ()), note]
    write_localization(localization.path, content)


def _setting(policy: str) -> str | None:
    """Return the key of a mode that sets the policy, with its value; None if no key sets it."""
    return {BY_ITSELF: BY_ITSELF, ON_CPU: None}.get(policy, f"mark_step={policy}")


def _is_again(culprit: Culprit) -> bool:
    return any(reason.startswith(AGAIN) for reason in culprit.reasons)


def drawn_again(graphs: RunGraphs) -> list[list[Node]]:
    """Return the calls that draw random numbers and are part of more than one of the step's graphs. Each call is a list
    of its nodes.

    Their results were not kept, so they were executed again. A call has the same sequence number in all graphs.

    Raises JournalError.
    """
    nodes_of_call: dict[object, list[Node]] = {}
    for name in dict.fromkeys(execution.graph for execution in graphs.executions):
        for node in graphs.graph(f"{name}-pre").nodes:
            if node.sequence is not None and draws(node.op):
                nodes_of_call.setdefault((node.op, node.module, node.sequence), []).append(node)
    return [nodes for nodes in nodes_of_call.values() if len(nodes) > 1]


def _own_cuts(inquiry: Inquiry, own: str) -> tuple[list[tuple[str, str]], list[list[Node]]]:
    """Return what is known of the cuts that the mode's own policy makes in the step.

    These are the ops that fell back to the CPU, each with its line, and the calls that draw random numbers again.
    """
    fallen, drawn = list[tuple[str, str]](), list[list[Node]]()
    run = EvidenceFolder.of(inquiry.evidence.a).find(inquiry.experiment("cut", own))
    if run is not None:
        graphs = RunGraphs(run)
        with suppress(NumdriftError):
            cuts = [execution.cut for execution in graphs.executions if execution.cut is not None]
            fallen = [(cut.get("op", ""), cut.get("source", "")) for cut in cuts if cut.get("reason") == "fallback"]
            drawn = drawn_again(graphs)
    return fallen, drawn


def _culprit(inquiry: Inquiry, own: str, best: str, scores: Mapping[str, float]) -> Culprit:
    """Build the culprit, named after the ops that draw again in the step's graphs, else after the cause of the cuts."""
    fallen, drawn = _own_cuts(inquiry, own)
    ops = list(dict.fromkeys(op for op, _ in fallen))
    why = (
        f"{', '.join(ops)} {'falls' if len(ops) == 1 else 'fall'} back to the CPU, which executes the graph so far"
        if ops
        else "a graph is cut"
    )
    text = f"{why}, and values that were not kept are computed again"
    op, source, sites, more = ops[0] if ops else None, fallen[0][1] if fallen else None, len(fallen), dict[str, Any]()
    if drawn:
        nodes = [call_nodes[0] for call_nodes in drawn]
        ops = list(dict.fromkeys(node.full_op for node in nodes))
        places = [module for module in dict.fromkeys(node.module for node in nodes) if module]
        times = max(map(len, drawn))
        text = f"draws different random numbers, because it is executed {times} times: {text}"
        op, source, sites = ops[0], nodes[0].source or None, len(drawn)
        more = {"module": places[0] if places else None, "places": places}
    a, b = inquiry.evidence.a.manifest.label, inquiry.evidence.b.manifest.label
    return mode_culprit(
        kind=MARK_STEP,
        step=inquiry.step,
        name=why,
        reasons=[text],
        before=scores[own],
        after=scores[best],
        threshold=inquiry.threshold,
        why=f"mark_step={own} against {_setting(best) or best}",
        op=op,
        source=source,
        ops={"a": [], "b": ops},
        sites=sites,
        policy={a: None, b: own, "swapped": best},
        swapped=_setting(best),
        **more,
    )

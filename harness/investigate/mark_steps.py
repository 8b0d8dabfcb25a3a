"""Whether a lazy mode's drift comes from where its graphs are cut: the same step with other mark-step policies.

A lazy graph is executed when something needs its values: a mark_step, a number that is read, or an op that falls back
to the CPU. What is not kept then is executed again by the next graph, and where that draws random numbers it draws
others. So the policy is a swap: where another one takes the drift away, the re-execution was the cause.

The tape of what was executed shows which op that is (`ops`): then the policy is a remedy of that culprit. Where there
is no such tape, it is a culprit itself, named by the ops that stand in several graphs of the step and draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..drift.step_noise import Noise, read_noise
from ..drift.step_score import score_step
from ..drift.verdict import worst_of
from ..errors import NumdriftError
from ..graphs.run_graphs import RunGraphs
from ..records.culprit import AGAIN, MARK_STEP, Culprit
from ..records.graph_record import Node
from ..records.localization_record import Localization, write_localization
from ..records.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun
from ..runs.step_outcomes import outcome_steps, read_outcome
from ..tape.op_names import draws
from .evidence import EvidenceFolder, PairEvidence
from .executed_steps import is_of_another_step
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, Round, begun_in
from .ops import known
from .pair_scores import spec_of
from .question import Inquiry, QuestionAnswer, mode_culprit
from .setting_axes import with_setting

BY_ITSELF = "execute=op"
"""The key of a mode that executes each op when it is called, and nothing again: tried where every policy does so."""

ON_CPU = "each op executed by itself on the CPU"
"""What takes the place of a policy where that does not help either: the same ops, which the step is held against."""

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

    def score(policy: str) -> float:
        run = folder.find(inquiry.experiment("cut", policy))
        if run is None or reference is None or step not in outcome_steps(run.path):
            return math.inf
        noise = read_noise(reference.path, step) or Noise(step, 0, {})
        return worst_of([score_step(read_outcome(stand_in.path, step), read_outcome(run.path, step), noise)])

    scores = {policy: score(policy) for policy in (own, *others)}
    before = scores[own]
    if not before:
        return
    best, is_named = min(others, key=lambda policy: scores[policy]), any(map(_is_again, found.culprits))
    if scores[best] > (before / 2 if is_named else inquiry.threshold):
        # Cuts that every policy makes are a cause only where something is drawn again. Lazy mode has other last bits
        # than its ops one by one on some processors, and a kernel of few bits magnifies these, whatever is cut.
        states = [one.generators["torch"] for one in a.journal.steps if "torch" in one.generators]
        if not is_named and len(states) > 1 and len({*states}) == 1:  # nothing is drawn; of fewer states nobody knows
            return
        spec = with_setting(spec_of(b), BY_ITSELF)
        plan = begun_in(inquiry.states, b, inquiry.experiment("cut", "op"), [step], spec=spec)
        laboratory.make(Round(f"each op of step {step} of {b.manifest.label} executed by itself", [plan]))
        best, scores[BY_ITSELF] = BY_ITSELF, score("op")
        if scores[best] > min(inquiry.threshold, before / 2) and not is_named:
            best, scores[ON_CPU] = ON_CPU, 0.0
    helps = scores[best] <= before / 2
    remedy = _setting(best) if helps else None
    if is_named:
        culprits = [replace(one, swapped=remedy) if _is_again(one) else one for one in found.culprits]
    elif helps:
        run = folder.find(inquiry.experiment("cut", own))
        culprits = [_culprit(inquiry, own, best, scores, run), *found.culprits]
    else:  # the cuts are not what makes the step another
        return
    content = {**found.content, "culprits": culprits, "policies": scores}
    if remedy:
        mode = with_setting(spec_of(b), remedy)
        said = f"with {remedy} nothing is executed again that counts: z {scores[best]:.3g} in place of {before:.3g}"
        content["notes"] = [*found.content.get("notes", ()), f'{said} (--mode "{mode}")']
    write_localization(found.path, content)


def _setting(policy: str) -> str | None:
    """The key of a mode that has it, with its value; None of what no mode does."""
    return {BY_ITSELF: BY_ITSELF, ON_CPU: None}.get(policy, f"mark_step={policy}")


def _is_again(culprit: Culprit) -> bool:
    return any(one.startswith(AGAIN) for one in culprit.reasons)


def drawn_again(graphs: RunGraphs) -> list[list[Node]]:
    """The calls that draw random numbers and stand in more than one of the step's graphs, each with its nodes: as what
    they gave was not kept, they were executed once more. One call of autograd has one number in all graphs.

    Raises JournalError."""
    found: dict[object, list[Node]] = {}
    for name in dict.fromkeys(one.graph for one in graphs.executions):
        for node in graphs.graph(f"{name}-pre").nodes:
            if node.sequence is not None and draws(node.op):
                found.setdefault((node.op, node.module, node.sequence), []).append(node)
    return [nodes for nodes in found.values() if len(nodes) > 1]


def _culprit(inquiry: Inquiry, own: str, best: str, scores: Mapping[str, float], run: RecordedRun | None) -> Culprit:
    """`run` has the graphs that were executed: what is drawn again in them names the culprit, else what cuts them."""
    fallen, drawn = list[tuple[str, str]](), list[list[Node]]()
    if run is not None:
        graphs = RunGraphs(run)
        with suppress(NumdriftError):
            cuts = [one.cut for one in graphs.executions if one.cut is not None]
            fallen = [(one.get("op", ""), one.get("source", "")) for one in cuts if one.get("reason") == "fallback"]
            drawn = drawn_again(graphs)
    ops = list(dict.fromkeys(op for op, _ in fallen))
    why = (
        f"{', '.join(ops)} {'falls' if len(ops) == 1 else 'fall'} back to the CPU, which executes the graph so far"
        if ops
        else "a graph is cut"
    )
    text = f"{why}, and what was not kept is executed again"
    op, source, sites, more = ops[0] if ops else None, fallen[0][1] if fallen else None, len(fallen), dict[str, Any]()
    if drawn:
        nodes = [one[0] for one in drawn]
        ops = list(dict.fromkeys(node.full_op for node in nodes))
        places = [one for one in dict.fromkeys(node.module for node in nodes) if one]
        times = max(map(len, drawn))
        text = f"draws other random numbers, as it is executed {times} times: {text}"
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

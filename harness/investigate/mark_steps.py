"""Whether a lazy mode's drift comes from where its graphs are cut: the same step with other mark-step policies.

A lazy graph is executed when something needs its values: a mark_step, a number that is read, or an op that falls back to the CPU. What
is not kept then is executed again by the next graph, and where that draws random numbers it draws others. So the policy is a
swap: where another one takes the drift away, the re-execution was the cause.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..drift.step_noise import Noise, read_noise
from ..drift.step_score import score_step
from ..drift.verdict import worst_of
from ..errors import NumdriftError
from ..graphs.run_graphs import RunGraphs
from ..records.localization_record import Localization, write_localization
from ..records.step_selection import StepSelection
from ..runs.recorded_run import RecordedRun
from ..runs.step_outcomes import outcome_steps, read_outcome
from .chosen_steps import selection
from .evidence import EvidenceFolder
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, repeating
from .localization import Task, state_folder
from .mode_culprit import mode_culprit
from .pair_scores import spec_of

OP_BY_OP = "every op executed at once"
"""What takes the place of a policy that helps: the stand-in on the CPU."""

POLICIES = ("phase", "step", "off")
"""`auto` cuts as `phase` does."""


def search_mark_steps(
    laboratory: Laboratory, task: Task, found: Localization, plan: InvestigationPlan
) -> None:
    """Try the other policies, and add the culprit to the localization where one of them takes the drift away."""
    a, b = task.evidence.a, task.evidence.b
    own = spec_of(b).mark_step or "auto"
    others = [policy for policy in POLICIES if policy != own and not (own == "auto" and policy == "phase")]
    step = selection([task.step])
    folder = EvidenceFolder.of(a)
    plans = []
    for policy in (own, *others):
        plans.append(
            repeating(
                b,
                task.experiment("cut", policy),
                spec=replace(spec_of(b), mark_step=policy),
                outcomes=step,
                resync=state_folder(task.evidence, task.step),
                until=task.step,
                graphs=policy == own,
                graph_steps=StepSelection(((task.step, task.step),)),
                timeout=plan.timeout,
            )
        )
    laboratory.experiments(f"mark-step policies in step {task.step} of {b.manifest.label}", plans)
    stand_in = folder.find(task.experiment("held"))
    if stand_in is None:
        return
    scores = {
        policy: _score(task, stand_in, folder.find(task.experiment("cut", policy)))
        for policy in (own, *others)
    }
    before = scores[own]
    if not before:
        return
    best = min(others, key=lambda policy: scores[policy])
    if scores[best] > task.threshold:
        best, scores[OP_BY_OP] = OP_BY_OP, 0.0
    if scores[best] > before / 2:  # the cuts are not what makes the step another
        return
    culprit = _culprit(task, own, best, scores, _cuts(folder.find(task.experiment("cut", own))))
    content = {**found.content, "culprits": [culprit, *found.culprits], "policies": scores}
    write_localization(found.path, content)


def _score(task: Task, stand_in: RecordedRun, run: RecordedRun | None) -> float:
    """How far the step is from the same ops executed one by one; infinitely for a run that did not get there."""
    reference = next((one for one in task.evidence.taped if task.step in outcome_steps(one.path)), None)
    if run is None or reference is None or task.step not in outcome_steps(run.path):
        return math.inf
    noise = read_noise(reference.path, task.step) or Noise(task.step, 0, {})
    scored = score_step(read_outcome(stand_in.path, task.step), read_outcome(run.path, task.step), noise)
    return worst_of([scored])


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
    task: Task, own: str, best: str, scores: Mapping[str, float], cuts: Counter[tuple[str, str]]
) -> dict[str, Any]:
    before, after = scores[own], scores[best]
    fallen = list(cuts)
    ops = list(dict.fromkeys(op for op, _ in fallen))
    why = (
        f"{', '.join(ops)} {'falls' if len(ops) == 1 else 'fall'} back to the CPU, which executes the graph so far"
        if ops
        else "a graph is cut"
    )
    text = f"{why}, and what was not kept is executed again, where a random op draws other numbers"
    a, b = task.evidence.a.manifest.label, task.evidence.b.manifest.label
    return mode_culprit(
        kind="mark-step",
        step=task.step,
        name=why,
        reasons=[text],
        before=before,
        after=after,
        threshold=task.threshold,
        why=f"mark_step={own} against {best if best == OP_BY_OP else f'mark_step={best}'}",
        op=ops[0] if ops else None,
        source=fallen[0][1] if fallen else None,
        ops={"a": [], "b": ops},
        sites=sum(cuts.values()),
        policy={a: None, b: own, "swapped": best},
        swapped=None if best == OP_BY_OP else f"mark_step={best}",
    )

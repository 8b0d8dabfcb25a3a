"""A call that is made alone: is it wrong only after other calls, because of the compiled code of an earlier one?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..investigate.experiments.laboratory import Laboratory
from ..launch.batch_plan import BatchPlan
from ..records.results.call_check import CheckedMode
from ..records.results.findings import WITHIN
from ..records.run.call_subject import TIMES, CallFacts
from ..records.run.step_selection import KeepParams
from ..runs.numpy_values import Array
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import InvestigationFolder
from .compared_calls import call_differences, facts_of

ALONE = "alone"
"""The folder of these runs in the folder of a check."""

OF_COMPILER = ("InductorError", "BackendCompilerFailed", "LoweringException", "TorchRuntimeError", "Unsupported")
"""The errors that torch.compile raises while it compiles (torch._inductor.exc and torch._dynamo.exc of torch 2.13)."""

SHARE = 1e-3
"""A call counts as right when it is made alone if less than this share of its drift is left."""


def made_alone(mode: CheckedMode, runs: Sequence[RecordedRun], batch: BatchPlan, laboratory: Laboratory) -> CheckedMode:
    """Make the first wrong call of a mode alone, if other calls were made before it. Return the mode with the result.

    `runs` are those of the reference and of the mode. Only modes that compile have code of earlier calls.
    """
    reference, run = runs
    spec = next(spec for spec in batch.modes if spec.name == run.manifest.mode)
    assert batch.subject is not None
    if mode.verdict in (*WITHIN, "failed", None) or not spec.capabilities.compiles:
        return mode
    facts = facts_of(reference)
    number = _first_wrong(mode, facts, facts_of(run))
    if not number:
        return mode
    subject = replace(batch.subject, only=number)
    plan = replace(
        batch,
        modes=[spec],
        subject=subject,
        investigation=InvestigationFolder(batch.investigation.path / ALONE / str(number)),
        keep_params=KeepParams(),
    )
    [alone] = laboratory.free(plan)
    expected = facts[number * TIMES : (number + 1) * TIMES]
    if call_differences(expected, facts_of(alone)) or not alone.journal.steps:
        return mode
    if not mode.differences and not _is_right(reference, run, alone, _step_of(facts, number)):
        return mode
    label, raised = expected[0].label, facts_of(run)[number * TIMES].raised
    alone_it_is_right = (
        f"made alone, in a process that has compiled nothing before, {label} computes what {reference.manifest.label} "
        "computes: "
    )
    if raised.startswith(OF_COMPILER):
        # No compiled code ran. Once a shape has changed, torch.compile compiles for sizes that it does not know.
        sentence = f"{alone_it_is_right}only after the earlier calls, torch.compile compiles it in a way that fails"
        answer = (
            f"{mode.mode} cannot compile {label} after the earlier calls, and can alone: torch.compile makes sizes "
            "dynamic once they have changed; report the error, with the text that --markdown writes, or use dynamic=off"
        )
    else:
        sentence = (
            f"{alone_it_is_right}the compiled code of an earlier call is used where it does not apply (a missing guard)"
        )
        answer = (
            f"{mode.mode} uses the compiled code of an earlier call in {label}, where it does not apply: a proven "
            "fault; report the missing guard, with the text that --markdown writes"
        )
    return replace(mode, answer=answer, text=[sentence, *mode.text])


def _first_wrong(mode: CheckedMode, reference: Sequence[CallFacts], calls: Sequence[CallFacts]) -> int | None:
    """Return the number of the first call that differs, None if it is unknown."""
    if mode.differences:
        pairs = zip(reference, calls, strict=False)
        return next((place // TIMES for place, (a, b) in enumerate(pairs) if call_differences([a], [b])), None)
    if mode.pair is None or mode.pair.first_significant_step is None:
        return None
    stepped = [place for place, call in enumerate(reference) if not call.raised]
    step = mode.pair.first_significant_step
    return stepped[step] // TIMES if step < len(stepped) else None


def _step_of(reference: Sequence[CallFacts], number: int) -> int:
    """Return the step of a call in a run of all calls."""
    return sum(not call.raised for call in reference[: number * TIMES])


def _is_right(reference: RecordedRun, run: RecordedRun, alone: RecordedRun, step: int) -> bool:
    """Check whether a call made alone has the reference's results, in which the run of all calls has a drift."""
    expected, drifted, lone = reference.parameters(step), run.parameters(step), alone.parameters(0)
    changed = [name for name in expected if name in drifted and _distance(expected[name], drifted[name])]
    return bool(changed) and all(
        _distance(expected[name], lone[name]) <= SHARE * _distance(expected[name], drifted[name]) for name in changed
    )


def _distance(a: Array, b: Array) -> float:
    """Return the L2 distance of two results; infinity if only one of them is finite."""
    if a.tobytes() == b.tobytes():
        return 0.0
    with np.errstate(all="ignore"):
        difference = np.linalg.norm((a.astype(np.complex128) - b.astype(np.complex128)).ravel())
    return float(difference) if np.isfinite(difference) else float("inf")

"""The comparison of a mode's calls with those of the reference: first what the calls did, then the values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..drift.wholes import entries_of
from ..investigate.words.call_words import call_of, result_name, says
from ..records.codec import read_fields
from ..records.frames import REFUSED
from ..records.results.call_check import RAISES, RESULTS, CallResult, CheckedMode
from ..records.results.findings import Findings, PairFindings
from ..records.run.call_subject import CALLED, CallFacts
from ..report.answer import answer_of
from ..runs.recorded_run import RecordedRun

RAISED = re.compile(r": (raises|returns, where)")
"""The beginning of a difference in the errors that a call raises."""

ILL_CONDITIONED = 1000.0
"""A function that magnifies rounding by more than this is called ill-conditioned: three decimal digits are lost."""

RECORDED = ("parameter ", "buffer ", "gradient ")
"""The beginnings of the names of values that are results; a step has others, such as what its module returned."""

DRAWS = "draw different random numbers"
"""The words of a verdict on modes with different draws."""

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance between 1 and the next larger number of a dtype (IEEE 754)."""


def facts_of(run: RecordedRun) -> list[CallFacts]:
    """Return the facts of a run's calls."""
    names = {"event", "time"}
    return [
        read_fields(CallFacts, {key: value for key, value in event.items() if key not in names})
        for event in run.journal.events(CALLED)
    ]


def call_differences(
    reference: Sequence[CallFacts], calls: Sequence[CallFacts], name: str = "the reference"
) -> list[str]:
    """Return how the calls of a mode differ from those of the reference, called `name`, in anything but values."""
    found = list[str]()
    for expected, call in zip(reference, calls, strict=False):
        if bool(expected.raised) != bool(call.raised):
            what = f"raises {call.raised}, where {name} returns"
            if expected.raised:
                what = f"returns, where {name} raises {expected.raised}"
            found.append(f"{expected.label}: {what}")
            continue
        results = {result.name: result for result in call.results}
        sees_memory = expected.sees_memory and call.sees_memory
        for result in expected.results:
            other = results.get(result.name)
            if other is None:
                found.append(f"{expected.label}: {result.name} is missing")
                continue
            for what, before, now in (
                (f"dtype {other.dtype}", result.dtype, other.dtype),
                (f"shape {list(other.shape)}", list(result.shape), list(other.shape)),
                (_memory(other.alias), _memory(result.alias), _memory(other.alias)),
            ):
                if before != now and (sees_memory or what != now):
                    found.append(f"{expected.label}: {result.name} has {what}, where {name} has {before}")
        if sees_memory:
            written = [input_name for input_name in call.mutated if input_name not in expected.mutated]
            left = [input_name for input_name in expected.mutated if input_name not in call.mutated]
            found += [f"{expected.label}: writes to {each}, which {name} leaves as it is" for each in written]
            found += [f"{expected.label}: leaves {each} as it is, which {name} writes to" for each in left]
    return list(dict.fromkeys(found))


def _memory(alias: str) -> str:
    return f"the memory of {alias}" if alias else "memory of its own"


def checked_mode(
    reference: RecordedRun,
    run: RecordedRun,
    differences: Sequence[str],
    findings: Findings | None,
    labels: Sequence[str],
) -> CheckedMode:
    """Return what is known of a mode: from its calls' facts if these differ, else from the findings on its values."""
    a, b = reference.manifest.label, run.manifest.label
    if differences:
        error = next((text for text in differences if RAISED.search(text)), None)
        if error is None:
            answer = f"{b} does something else than {a}: {differences[0]}"
            return CheckedMode(b, RESULTS, answer, differences=differences)
        call, _, does = error.partition(": ")
        return CheckedMode(b, RAISES, f"{b} {does} ({call})", differences=differences)
    if findings is None and run.manifest.failed:
        calls, reached = facts_of(reference), len(facts_of(run))
        place = f" in {calls[reached].label}, where {a} raises {calls[reached].raised}" if reached < len(calls) else ""
        ended = f"{run.manifest.status} {run.manifest.message}".strip()
        return CheckedMode(b, RAISES, f"{b} ends its process{place}: {ended}")
    if findings is None:  # no call returns in either mode
        return CheckedMode(b, "identical", f"{b} raises errors in the same calls as {a}; nothing to do")
    pair = next(pair for pair in findings.pairs if pair.b == b)
    if run.manifest.status == REFUSED:
        return CheckedMode(b, "failed", f"{b} was not compared with {a}: {run.manifest.message}", pair=pair)
    if pair.verdict == "failed" and run.manifest.failed and reference.manifest.got_through:
        message = f"{run.manifest.status} {run.manifest.message}".strip()
        return CheckedMode(b, RAISES, f"{b} does not return where {a} does: {message}", pair=pair)
    if pair.verdict is None and _is_equal_but_for_nan(reference, run):
        answer = f"{b} computes the same as {a}, but for the bits of NaN (their signs and payloads); nothing to do"
        return CheckedMode(b, "identical", answer)
    pair = _with_proven_drift(pair)
    if pair.verdict == "nondeterministic" and _repeats(pair, a) and not _repeats(pair, b):
        control = pair.controls[b]
        name = result_name(f"gradient 0 {control['tensor']}" if control["what"] == "gradient" else control["tensor"])
        answer = (
            f"{b} computes other bits of {name} each time, where {a} repeats its own: memory that no op has written, a "
            f"draw without a seed, or a race; look at what makes {name}"
        )
        return CheckedMode(b, pair.verdict, answer, results=_results(pair, reference, labels), pair=pair)
    if pair.verdict == "different-setup" and DRAWS in pair.text[0]:
        answer = (
            f"{b} draws other random numbers than {a}, although both start from the same seed: it draws again, or in "
            "another order"
        )
        return CheckedMode(
            b, pair.verdict, answer, [says(pair.text[0], labels)], results=_results(pair, reference, labels), pair=pair
        )
    results = _results(pair, reference, labels)
    text = [says(sentence, labels) for sentence in pair.text if "the losses" not in sentence]
    magnified = max(results, key=lambda result: result.magnified or 0.0, default=None)
    repeats = pair.verdict != "nondeterministic"  # else what differs between two executions is not rounding
    if repeats and magnified is not None and (magnified.magnified or 0.0) > ILL_CONDITIONED:
        text.append(
            f"the function is ill-conditioned at these inputs: rounding alone moves {magnified.name} by "
            f"{magnified.rounding:.2g} of its size ({magnified.magnified:,.0f} times the epsilon of {magnified.dtype})"
        )
    return CheckedMode(
        b,
        pair.verdict,
        says(answer_of(pair).sentence, labels),
        text,
        results=results,
        closer_to_fp64=pair.closer_to_fp64,
        pair=pair,
    )


def _with_proven_drift(pair: PairFindings) -> PairFindings:
    """Return an undecided pair with the verdict of its proven cause, if that moves the call by more than rounding.

    A step is undecided if its drift is gone once a discrete choice next to its edge is made as in the reference. In a
    training, such a choice is chance. In a call with these inputs, the cause of the choice is what was asked for.
    """
    scores = [
        culprit.proof.swap_out.score_before
        for culprit in pair.culprits
        if culprit.is_proven and culprit.proof is not None and culprit.proof.swap_out.score_before is not None
    ]
    worst = max(scores, default=0.0)
    if pair.verdict is not None or pair.threshold is None or worst <= pair.threshold:
        return pair
    text = (
        f"the drift of the call is {worst:.3g} times the reference's own rounding noise: a discrete choice next to its "
        "edge is made in the opposite way"
    )
    step = pair.first_differing_step
    return replace(
        pair, verdict="beyond-rounding", score=worst, first_significant_step=step, text=[text, *pair.text[1:]]
    )


def _repeats(pair: PairFindings, label: str) -> bool:
    control = pair.controls.get(label)
    return control is not None and bool(control["repeatable"])


def _is_equal_but_for_nan(a: RecordedRun, b: RecordedRun) -> bool:
    """Check whether two runs have the same results after every step, where NaN equals NaN, whatever its bits are."""
    steps = a.journal.value_steps
    if steps != b.journal.value_steps or len(steps) != len(a.journal.steps):
        return False
    for step in steps:
        left, right = a.parameters(step), b.parameters(step)
        if left.keys() != right.keys():
            return False
        for name, value in left.items():
            is_number = value.dtype.kind in "fc"
            if not np.array_equal(value, right[name], equal_nan=is_number):
                return False
    return True


def _results(pair: PairFindings, reference: RecordedRun, labels: Sequence[str]) -> list[CallResult]:
    """Return the results whose values differ, each at the call with the largest score, the farthest first."""
    dtypes = {name: entry.dtype for name, entry in entries_of(reference).items()}
    rows: dict[str, CallResult] = {}
    for step in pair.steps:
        for tensor in step.tensors:
            if not tensor.name.startswith(RECORDED) or tensor.score is None:
                continue
            dtype = dtypes.get(tensor.name.rpartition(" ")[2], "float32")
            scale = tensor.norm if tensor.norm and math.isfinite(tensor.norm) else 1.0
            rounding = tensor.noise / scale
            row = CallResult(
                result_name(tensor.name),
                call_of(step.step, labels),
                dtype,
                tensor.distance / scale,
                rounding,
                rounding / EPSILON[dtype] if dtype in EPSILON and not tensor.discrete else None,
                tensor.score,
            )
            if row.name not in rows or rows[row.name].z < row.z:
                rows[row.name] = row
    return sorted(rows.values(), key=lambda row: -row.z)

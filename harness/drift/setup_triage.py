"""What two runs were given differently: the reasons why they need not agree however well both compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..records.adoption_facts import NO_AUTOCAST
from ..runs.mapped_tensors import TensorFile
from ..runs.recorded_run import RecordedRun
from .hyper_parameter_history import hyper_differences
from .initial_values import initial_differences
from .recorded_drift import first_computed_difference
from .setup_difference import KINDS, SetupDifference
from .step_inputs import batch_setup, generator_setup

WITHOUT_NUMBERS = frozenset({"DEVICE", "TORCHINDUCTOR_CACHE_DIR"})
"""Variables that are numdrift's own, by the mode, and that torch sets itself where it compiles."""

OF_LAUNCHER = "TORCHELASTIC_"
"""Variables that say how ranks were started, which changes no number."""

FACTS = {
    "torch": "torch",
    "python": "Python",
    "cpu_capability": "the CPU's capability",
    "threads": "threads",
    "deterministic": "deterministic algorithms",
    "matmul_precision": "float32 matmul precision",
    "platform": "the platform",
}
"""Entries of a run's environment that may change its numbers, and what they are called."""


def setup_differences(
    a: RecordedRun, b: RecordedRun, state_a: TensorFile | None = None, state_b: TensorFile | None = None
) -> list[SetupDifference]:
    """Compare what went into two runs, the first occurrence of each kind and name, a cause before its consequence.

    `state_a` and `state_b` are the states that step 0 began with; without them distances between initial values are
    told by their digests.
    """
    drifting_from = first_computed_difference(a, b)
    found = [
        *_of_script(a, b),
        *_of_autocast(a, b),
        *initial_differences(a, b, state_a, state_b),
        *hyper_differences(a, b, drifting_from),
        *generator_setup(a, b),
        *batch_setup(a, b, drifting_from),
        *_of_length(a, b),
    ]
    return _linked(sorted(found, key=lambda one: (one.step, KINDS.index(one.kind))))


def environment_differences(a: RecordedRun, b: RecordedRun) -> list[str]:
    """Facts about the two processes that differ; a mode may state them, so they are no set-up."""
    left, right = a.manifest.environment, b.manifest.environment
    found = [
        f"{called} {left[key]} against {right[key]}"
        for key, called in FACTS.items()
        if key in left and key in right and left[key] != right[key]
    ]
    variables = [one.get("environment") or {} for one in (left, right)]
    for name in sorted((variables[0].keys() | variables[1].keys()) - WITHOUT_NUMBERS):
        if name.startswith(OF_LAUNCHER):
            continue
        ours, theirs = (one.get(name) for one in variables)
        if ours != theirs:
            found.append(f"{name} {_shown(ours)} against {_shown(theirs)}")
    return found


def _of_script(a: RecordedRun, b: RecordedRun) -> list[SetupDifference]:
    found, left, right = [], a.manifest, b.manifest
    if left.script_sha256 != right.script_sha256:
        text = f"the runs are of different scripts: {left.reproducer} and {right.reproducer}"
        found.append(SetupDifference("script", 0, "script", text))
    if list(left.arguments) != list(right.arguments):
        text = f"the script's arguments are {_joined(left.arguments)} against {_joined(right.arguments)}"
        found.append(SetupDifference("arguments", 0, "arguments", text))
    return found


def _of_autocast(a: RecordedRun, b: RecordedRun) -> list[SetupDifference]:
    """A mode without autocast computes in another precision than one that has it."""
    without = [
        any(doubt["text"].startswith(NO_AUTOCAST) for doubt in run.manifest.adopted.get("doubts", ()))
        for run in (a, b)
    ]
    if without[0] == without[1]:
        return []
    lacking = (a if without[0] else b).manifest
    text = f"autocast does nothing in {lacking.label}, which computes in its parameters' dtype"
    return [SetupDifference("autocast", 0, "autocast", text)]


def _of_length(a: RecordedRun, b: RecordedRun) -> list[SetupDifference]:
    """A run that failed is shorter for that reason."""
    counts = [len(run.journal.steps) for run in (a, b)]
    if (
        counts[0] == counts[1]
        or a.journal.damage
        or b.journal.damage
        or any(run.manifest.failed and run.manifest.status != "nonfinite" for run in (a, b))
    ):
        return []
    return [SetupDifference("steps", min(counts), "steps", f"{counts[0]} against {counts[1]} steps")]


def _linked(found: list[SetupDifference]) -> list[SetupDifference]:
    """Mark what follows: batches are drawn from generators, and the training's length from everything before."""
    linked: list[SetupDifference] = []
    for one in found:
        causes = [cause for cause in linked if cause.counts]
        follows = (one.kind == "batch" and any(cause.kind == "generator" for cause in causes)) or (
            one.kind == "steps" and bool(causes)
        )
        linked.append(replace(one, follows=True) if follows else one)
    return linked


def _joined(arguments: Sequence[str]) -> str:
    return " ".join(arguments) or "(none)"


def _shown(value: object) -> str:
    return "(unset)" if value is None else str(value)

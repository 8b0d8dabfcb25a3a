"""All differences in the inputs of two runs, initial values first.

Such differences change results, however accurately both runs compute.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ...errors import ModeError
from ...records.modes.mode_spec import parse_mode
from ...records.run.adoption_facts import NO_AUTOCAST
from ...records.run.interpreters import differences
from ...records.values.digest_record import Digest
from ...runs.journal import InitialTensor
from ...runs.mapped_tensors import TensorFile
from ...runs.recorded_run import RecordedRun
from ..norms import as_float, difference, is_floating
from ..recorded_drift import bits, cut_short, first_computed_difference
from ..setup_difference import KINDS, SetupDifference
from ..step_score import UNIT_ROUNDOFF
from ..ulp import max_ulp
from .split_batch import SplitBatch
from .step_setup import batch_setup, generator_setup, hyper_differences

# The parameters and buffers that two runs start from.

ROUNDING_ULP = 4
"""Initial values that are at most this many ULP apart are the same up to rounding."""

ROUNDING_RELATIVE = 1e-6
"""Tensors whose relative L2 distance is at most this are the same up to rounding: 17 unit roundoffs of float32."""

MOST_NAMED = 3
"""The largest number of tensors that are named one by one; more are reported as one difference."""


@dataclass(frozen=True, slots=True)
class _Other:
    """A tensor that starts from different values; `text` follows the tensor's name in a sentence."""

    name: str
    text: str
    size: float | None
    rounding: bool


def initial_differences(
    a: RecordedRun, b: RecordedRun, state_a: TensorFile | None, state_b: TensorFile | None
) -> list[SetupDifference]:
    """Return the differences before step 0. Distances are computed from the states of step 0 if both are passed."""
    left, right = a.journal.initial(), b.journal.initial()
    if not left or not right:
        return []
    setup = []
    for tensors, counterparts, side in ((left, right, b), (right, left, a)):
        lacking = [name for name in tensors if name not in counterparts]
        if lacking:
            quoted = [f"`{name}`" for name in lacking[:MOST_NAMED]]
            more = len(lacking) - len(quoted)
            listed = ", ".join(quoted) + (f" and {more} more tensor{'s' if more > 1 else ''}" if more else "")
            text = f"{listed} {'is' if len(lacking) == 1 else 'are'} missing in {side.manifest.label}"
            setup.append(SetupDifference("initial", 0, lacking[0], text))
    states = (state_a, state_b) if _of_the_beginning(state_a) and _of_the_beginning(state_b) else (None, None)
    others = [
        unlike for name in left if name in right and (unlike := _other(left[name], right[name], *states)) is not None
    ]
    setup += _grouped([tensor for tensor in others if not tensor.rounding], "")
    setup += _grouped([tensor for tensor in others if tensor.rounding], "rounding")
    return setup


def _of_the_beginning(state: TensorFile | None) -> bool:
    return state is not None and state.facts.get("step") == 0


def _other(a: InitialTensor, b: InitialTensor, state_a: TensorFile | None, state_b: TensorFile | None) -> _Other | None:
    """Describe how two tensors of one name differ; None if they are equal, or if it is unknown whether they differ."""
    if a.shape != b.shape:
        return _Other(a.name, f"has shape {list(a.shape)} against {list(b.shape)}", None, False)
    if not a.digest.readable or not b.digest.readable:
        return None
    if a.dtype == b.dtype and bits(a.digest) == bits(b.digest):
        return None
    key = f"{a.kind} {a.name}"
    left = state_a.tensors.get(key) if state_a else None
    right = state_b.tensors.get(key) if state_b else None
    tolerance = max(ROUNDING_RELATIVE, 4 * max(UNIT_ROUNDOFF.get(tensor.dtype, 0.0) for tensor in (a, b)))
    if left is None or right is None or left.shape != right.shape:
        # Only the statistics are compared: if all statistics are equal up to rounding, the values are assumed to be
        # equal up to rounding, although a permutation would look the same.
        if a.dtype != b.dtype and _close(a.digest, b.digest, 0.0):
            return None
        floating = all(tensor.dtype.startswith(("float", "bfloat", "complex")) for tensor in (a, b))
        text = f"starts from different values (norm {a.digest.l2:.4g} against {b.digest.l2:.4g})"
        return _Other(a.name, text, None, floating and _close(a.digest, b.digest, tolerance))
    if not (is_floating(left) and is_floating(right)):
        equal = bool((left == right).all())
        return None if equal else _Other(a.name, "starts from different values", None, False)
    apart = difference(left, right)
    if not apart.same_places:
        return _Other(a.name, "starts from different values, not all of them finite", math.inf, False)
    if not apart.differing:
        return None
    size = as_float(apart.distance.exact / apart.norm.exact) if apart.norm.mantissa else math.inf
    few_ulp = left.dtype == right.dtype and left.dtype.kind == "f" and max_ulp(left, right) <= ROUNDING_ULP
    text = f"starts from different values (relative L2 {size:.2g})"
    return _Other(a.name, text, size, few_ulp or size <= tolerance)


def _close(a: Digest, b: Digest, tolerance: float) -> bool:
    spread = a.l2 / math.sqrt(a.numel) if a.numel else 0.0
    pairs = [(a.l2, b.l2), (a.mean, b.mean), (a.minimum, b.minimum), (a.maximum, b.maximum)]
    return (a.nan, a.inf) == (b.nan, b.inf) and all(
        abs(x - y) <= tolerance * max(abs(x), spread) or (math.isnan(x) and math.isnan(y)) for x, y in pairs
    )


def _grouped(others: Sequence[_Other], harmless: str) -> list[SetupDifference]:
    if len(others) <= MOST_NAMED:
        return [
            SetupDifference("initial", 0, item.name, f"`{item.name}` {item.text}", item.size, harmless=harmless)
            for item in others
        ]
    worst = max(others, key=lambda item: -1.0 if item.size is None else item.size)
    more = f"`{worst.name}` {worst.text}, and so do {len(others) - 1} more tensors"
    return [SetupDifference("initial", 0, worst.name, more, worst.size, harmless=harmless)]


WITHOUT_NUMBERS = frozenset({"DEVICE", "TORCHINDUCTOR_CACHE_DIR"})
"""Environment variables that change no result: numdrift sets them for the mode, or torch sets them when it compiles."""

OF_PROCESS = ("TORCHELASTIC_", "LTC_SAVE_TENSORS")
"""The prefixes of environment variables that change no result.

These variables say how ranks were started, or where lazy graphs are written.
"""


def setup_differences(
    a: RecordedRun,
    b: RecordedRun,
    state_a: TensorFile | None = None,
    state_b: TensorFile | None = None,
    from_the_model: Collection[int] = (),
    rounded: Collection[int] = (),
    split: SplitBatch | None = None,
) -> list[SetupDifference]:
    """Compare the inputs of two runs. Return the first difference of each kind and name, causes first.

    state_a, state_b: the states in which step 0 began; without them, distances between initial values come from digests
    from_the_model: the arguments that the training script is known to compute itself
    rounded: the arguments that the mode computes itself and that differ from the reference's by rounding only
    split: how one side splits the other side's batches, if it does
    """
    drifting_from = first_computed_difference(a, b)
    setup, left, right = [], a.manifest, b.manifest
    # A reference from elsewhere is compared with the code of today.
    is_stated = bool(left.elsewhere) or _own_code(left.spec) != _own_code(right.spec)
    stated = "stated" if is_stated else ""
    if left.script_sha256 != right.script_sha256:
        text = f"the runs executed different scripts: {left.reproducer} and {right.reproducer}"
        setup.append(SetupDifference("script", 0, "script", text, harmless=stated))
    if list(left.arguments) != list(right.arguments):
        arguments = [" ".join(manifest.arguments) or "(none)" for manifest in (left, right)]
        text = f"the script's arguments differ: {arguments[0]} against {arguments[1]}"
        setup.append(SetupDifference("arguments", 0, "arguments", text, harmless=stated))
    # A mode in which autocast does nothing computes in a different precision than a mode with autocast.
    without = [
        any(doubt["text"].startswith(NO_AUTOCAST) for doubt in side.adopted.get("doubts", ())) for side in (left, right)
    ]
    if without[0] != without[1]:
        lacking = left if without[0] else right
        text = f"autocast does nothing in {lacking.label}, which computes in its parameters' dtype"
        setup.append(SetupDifference("autocast", 0, "autocast", text))
    setup += initial_differences(a, b, state_a, state_b)
    setup += hyper_differences(a, b, drifting_from)
    setup += generator_setup(a, b)
    setup += batch_setup(a, b, drifting_from, from_the_model, rounded, split)
    counts = [len(run.journal.steps) for run in (a, b)]
    # A run that failed is shorter because it failed.
    failed = any(manifest.failed and manifest.status != "nonfinite" for manifest in (left, right))
    unlike = counts[0] != counts[1] and cut_short(a, b) is None
    if unlike and not (a.journal.damage or b.journal.damage or failed):
        setup.append(SetupDifference("steps", min(counts), "steps", f"{counts[0]} against {counts[1]} steps"))
    # Differences that follow from others are marked: batches are drawn from generators, and the number of steps depends
    # on everything before it.
    linked: list[SetupDifference] = []
    for entry in sorted(setup, key=lambda item: (item.step, KINDS.index(item.kind))):
        causes = {cause.kind for cause in linked if cause.counts}
        follows = "generator" in causes if entry.kind == "batch" else entry.kind == "steps" and bool(causes)
        linked.append(replace(entry, follows=True) if follows else entry)
    return linked


def _own_code(mode: str) -> tuple[str | None, ...]:
    """Return what a mode states about its script; nothing for a mode that this installation does not know."""
    try:
        spec = parse_mode(mode)
    except ModeError:
        return ()
    return spec.script, spec.git, spec.args, spec.more_args


def environment_differences(a: RecordedRun, b: RecordedRun) -> list[str]:
    """Return the facts that differ between the two processes.

    A mode may set such facts, so they do not count as a difference in the set-up.
    """
    left, right = a.manifest.environment, b.manifest.environment
    facts = differences(left, right)
    variables = [environment.get("environment") or {} for environment in (left, right)]
    for name in sorted((variables[0].keys() | variables[1].keys()) - WITHOUT_NUMBERS):
        if name.startswith(OF_PROCESS):
            continue
        value_a, value_b = (side.get(name) for side in variables)
        if value_a != value_b:
            facts.append(f"{name} {_shown(value_a)} against {_shown(value_b)}")
    return facts


def _shown(value: object) -> str:
    return "(unset)" if value is None else str(value)

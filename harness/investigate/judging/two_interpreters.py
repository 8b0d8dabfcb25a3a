"""The interpreters of a pair in its findings: how they differ, and whether torch's version or the mode is to blame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...records.results.culprit import ARGUMENTS, KERNEL, LAYOUT, STRUCTURE, Culprit
from ...records.results.findings import TrainedWithout
from ...records.run.interpreters import MODE, VERSION, VERSION_OR_MODE, TwoInterpreters, are_two, differences
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_scores import spec_of
from .investigate_command import are_same_training, command_in_same_interpreter

OF_AN_OP = (KERNEL, LAYOUT, ARGUMENTS, STRUCTURE)
"""Kinds of culprits that a different version of torch can cause."""

MODE_KEYS = {"threads": "threads", "dtype": "default_dtype"}
"""Keys of a mode, each with the fact about the mode's process that it sets."""


def interpreters_of(a: RecordedRun, b: RecordedRun) -> TwoInterpreters | None:
    """Describe how the interpreters of two runs differ; None if both have the same packages."""
    left, right = a.manifest.environment, b.manifest.environment
    if not are_two(left, right):
        return None
    modes = (spec_of(a), spec_of(b))
    stated = [fact for key, fact in MODE_KEYS.items() if any(getattr(mode, key) is not None for mode in modes)]
    alike = are_same_training(a, b)
    same = alike and len({str(replace(mode, name=mode.base, python=None)) for mode in modes}) == 1
    return TwoInterpreters(
        torch={side: str(environment.get("torch", "unknown")) for side, environment in (("a", left), ("b", right))},
        differences=differences(left, right, stated),
        blame=VERSION if same else VERSION_OR_MODE,
        command=command_in_same_interpreter(a, b, *modes) if alike and not same else "",
    )


def blamed_by_training(interpreters: TwoInterpreters | None, without: TrainedWithout | None) -> TwoInterpreters | None:
    """Blame the mode if a training run to the end shows that the version causes none of the difference.

    That run executes the mode with its own version's plain kernels in place of the culprits, and equals the
    reference bit for bit.
    """
    if interpreters is None or interpreters.blame != VERSION_OR_MODE or without is None or not without.identical:
        return interpreters
    own = bool(without.swaps) and all(swap.startswith("kernel.") and swap.endswith("=aten") for swap in without.swaps)
    return replace(interpreters, blame=MODE, command="") if own else interpreters


def with_versions(culprits: Sequence[Culprit], interpreters: TwoInterpreters | None) -> list[Culprit]:
    """Return the culprits. If the two versions of torch differ, the culprits that are ops name both."""
    if interpreters is None or not interpreters.are_two_versions:
        return list(culprits)
    return [
        replace(culprit, torch=interpreters.torch, blame=interpreters.blame)
        if culprit.kind in OF_AN_OP and culprit.proof is not None
        else culprit
        for culprit in culprits
    ]

"""The interpreters of a pair in its findings: how they differ, and what may be to blame for a culprit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...records.modes.mode_spec import ModeSpec
from ...records.results.culprit import ARGUMENTS, KERNEL, LAYOUT, STRUCTURE, Culprit
from ...records.results.findings import TrainedWithout
from ...records.run.interpreters import MODE, VERSION, VERSION_OR_MODE, TwoInterpreters, are_two, differences
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_scores import spec_of
from ..words.culprit_words import from_here

OF_AN_OP = (KERNEL, LAYOUT, ARGUMENTS, STRUCTURE)
"""Kinds of culprits that another version of torch can cause."""

ONE_TRAINING = ("script_sha256", "module", "arguments", "world_size")
"""Fields of a manifest that are equal in two runs that are one training in two modes."""

MODE_KEYS = {"threads": "threads", "dtype": "default_dtype"}
"""Keys of a mode, each with the fact of its process that it sets."""


def interpreters_of(a: RecordedRun, b: RecordedRun) -> TwoInterpreters | None:
    """Describe how the interpreters of two runs differ; None where both have the same packages."""
    left, right = a.manifest.environment, b.manifest.environment
    if not are_two(left, right):
        return None
    modes = (spec_of(a), spec_of(b))
    stated = [fact for key, fact in MODE_KEYS.items() if any(getattr(mode, key) is not None for mode in modes)]
    alike = all(getattr(a.manifest, field) == getattr(b.manifest, field) for field in ONE_TRAINING)
    same = alike and len({str(replace(mode, name=mode.base, python=None)) for mode in modes}) == 1
    return TwoInterpreters(
        torch={side: str(environment.get("torch", "unknown")) for side, environment in (("a", left), ("b", right))},
        differences=differences(left, right, stated),
        blame=VERSION if same else VERSION_OR_MODE,
        command=_command(a, b, *modes) if alike and not same else "",
    )


def _command(a: RecordedRun, b: RecordedRun, reference: ModeSpec, mode: ModeSpec) -> str:
    """Return a command that compares b with the mode of a in b's interpreter; "" where no command line makes these
    runs."""
    executable, manifest = b.manifest.environment.get("executable"), a.manifest
    if not executable or manifest.in_process or b.manifest.in_process:
        return ""
    python = from_here(mode.python or str(executable))
    modes = [str(replace(spec, python=python)) for spec in (reference, mode)]
    words = [
        "numdrift",
        "investigate",
        *(["-m", manifest.module] if manifest.module else [_script(manifest.reproducer)]),
    ]
    words += [word for mode_text in modes for word in ("--mode", mode_text)]
    words += ["--nproc", str(manifest.world_size)] if manifest.world_size > 1 else []
    words += ["--", *manifest.arguments] if manifest.arguments else []
    return shlex.join(words)


def _script(path: str) -> str:
    return from_here(path) if Path(path).is_absolute() else path


def told_by_training(interpreters: TwoInterpreters | None, without: TrainedWithout | None) -> TwoInterpreters | None:
    """Blame the mode where a whole training shows that the version causes none of the difference.

    That training is in the mode, with its own version's plain kernels in place of the culprits, and equals the
    reference bit for bit.
    """
    if interpreters is None or interpreters.blame != VERSION_OR_MODE or without is None or not without.identical:
        return interpreters
    own = bool(without.swaps) and all(swap.startswith("kernel.") and swap.endswith("=aten") for swap in without.swaps)
    return replace(interpreters, blame=MODE, command="") if own else interpreters


def with_versions(culprits: Sequence[Culprit], interpreters: TwoInterpreters | None) -> list[Culprit]:
    """Return the culprits. Where the two versions of torch differ, the culprits that are ops name both."""
    if interpreters is None or not interpreters.are_two_versions:
        return list(culprits)
    return [
        replace(culprit, torch=interpreters.torch, blame=interpreters.blame)
        if culprit.kind in OF_AN_OP and culprit.proof is not None
        else culprit
        for culprit in culprits
    ]

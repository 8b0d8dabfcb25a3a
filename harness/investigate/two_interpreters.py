"""The interpreters of a pair in its findings: what differs between them, and what may be to blame for a culprit."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..records.culprit import ARGUMENTS, KERNEL, LAYOUT, STRUCTURE, Culprit
from ..records.findings import TrainedWithout
from ..records.interpreters import MODE, VERSION, VERSION_OR_MODE, TwoInterpreters, are_two, differences
from ..records.mode_spec import ModeSpec
from ..runs.recorded_run import RecordedRun
from .culprit_words import from_here
from .pair_scores import spec_of

OF_AN_OP = (KERNEL, LAYOUT, ARGUMENTS, STRUCTURE)
"""Kinds of culprits that another version of torch can make."""

ONE_TRAINING = ("script_sha256", "module", "arguments", "world_size")
"""What two manifests have alike whose runs are one training in two modes."""

MODE_KEYS = {"threads": "threads", "dtype": "default_dtype"}
"""Keys of a mode, and the fact of its process that they set."""


def interpreters_of(a: RecordedRun, b: RecordedRun) -> TwoInterpreters | None:
    """What differs between the interpreters of two runs; None where what is installed in them is the same."""
    left, right = a.manifest.environment, b.manifest.environment
    if not are_two(left, right):
        return None
    modes = (spec_of(a), spec_of(b))
    stated = [fact for key, fact in MODE_KEYS.items() if any(getattr(one, key) is not None for one in modes)]
    alike = all(getattr(a.manifest, one) == getattr(b.manifest, one) for one in ONE_TRAINING)
    same = alike and len({str(replace(one, name=one.base, python=None)) for one in modes}) == 1
    return TwoInterpreters(
        torch={side: str(one.get("torch", "unknown")) for side, one in (("a", left), ("b", right))},
        differences=differences(left, right, stated),
        blame=VERSION if same else VERSION_OR_MODE,
        command=_command(a, b, *modes) if alike and not same else "",
    )


def _command(a: RecordedRun, b: RecordedRun, reference: ModeSpec, mode: ModeSpec) -> str:
    """Holds b against the mode of a in b's interpreter; empty where no command line makes these runs."""
    there, known = b.manifest.environment.get("executable"), a.manifest
    if not there or known.in_process or b.manifest.in_process:
        return ""
    python = from_here(mode.python or str(there))
    modes = [str(replace(one, python=python)) for one in (reference, mode)]
    words = ["numdrift", "investigate", *(["-m", known.module] if known.module else [_script(known.reproducer)])]
    words += [word for one in modes for word in ("--mode", one)]
    words += ["--nproc", str(known.world_size)] if known.world_size > 1 else []
    words += ["--", *known.arguments] if known.arguments else []
    return shlex.join(words)


def _script(path: str) -> str:
    return from_here(path) if Path(path).is_absolute() else path


def told_by_training(found: TwoInterpreters | None, without: TrainedWithout | None) -> TwoInterpreters | None:
    """The same where the whole training in the mode, with torch's own kernels of its version in place of the culprits,
    was the reference's bit for bit: then the version makes none of the difference."""
    if found is None or found.blame != VERSION_OR_MODE or without is None or not without.identical:
        return found
    own = bool(without.swaps) and all(one.startswith("kernel.") and one.endswith("=aten") for one in without.swaps)
    return replace(found, blame=MODE, command="") if own else found


def with_versions(culprits: Sequence[Culprit], found: TwoInterpreters | None) -> list[Culprit]:
    """The culprits, those that are an op with both versions of torch where these differ."""
    if found is None or not found.are_two_versions:
        return list(culprits)
    return [
        replace(one, torch=found.torch, blame=found.blame) if one.kind in OF_AN_OP and one.proof is not None else one
        for one in culprits
    ]

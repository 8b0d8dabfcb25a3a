"""The commands that investigate two recorded runs, ready to be typed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...records.modes.mode_spec import ModeSpec
from ...records.run.run_config import RunConfig
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_scores import spec_of
from ..words.culprit_words import from_here

SAME_TRAINING = ("script_sha256", "module", "arguments", "world_size")
"""Fields of a manifest that are equal if two runs do the same training in different modes."""


def are_same_training(a: RecordedRun, b: RecordedRun) -> bool:
    """Check whether two runs execute the same script with the same arguments, in the same number of processes."""
    return all(getattr(a.manifest, field) == getattr(b.manifest, field) for field in SAME_TRAINING)


def command_for(a: RecordedRun, b: RecordedRun) -> str:
    """Return a command that runs the experiments that a pair of runs lacks.

    If the runs belong to one investigation, the command continues it without repeating the runs. For runs of two
    investigations, or an experiment and a run, the command investigates their script in their two modes. If the runs
    do not do the same training in two modes, the command has a placeholder for the script.
    """
    first, second = a.manifest, b.manifest
    if first.in_process or second.in_process:
        return "numdrift investigate SCRIPT"
    if a.path.parent == b.path.parent and first.suffix == second.suffix:
        suffix = f" --suffix {first.suffix}" if first.suffix else ""
        return f"numdrift investigate {a.path.parent}{suffix}"
    if first.mode == second.mode or not are_same_training(a, b):
        return "numdrift investigate SCRIPT"
    return command_of_modes(a, [spec_of(run) for run in (a, b)], first.reproducer)


def command_in_same_interpreter(a: RecordedRun, b: RecordedRun, reference: ModeSpec, mode: ModeSpec) -> str:
    """Return a command that compares the modes of a and b, both executed by b's interpreter; "" if no command line can
    repeat these runs."""
    executable, manifest = b.manifest.environment.get("executable"), a.manifest
    if not executable or manifest.in_process or b.manifest.in_process:
        return ""
    python = from_here(mode.python or str(executable))
    script = from_here(manifest.reproducer) if Path(manifest.reproducer).is_absolute() else manifest.reproducer
    return command_of_modes(a, [replace(spec, python=python) for spec in (reference, mode)], script)


def command_of_modes(run: RecordedRun, modes: Sequence[ModeSpec], script: str) -> str:
    """Return the command that investigates the training script of a run in these modes."""
    manifest, arguments = run.manifest, run.manifest.arguments
    if spec_of(run).args is not None or spec_of(run).more_args:  # the command has them as a part of the mode
        arguments = RunConfig.load(run.path / "config.json").arguments
    words = ["numdrift", "investigate"]
    words += ["-m", manifest.module] if manifest.module else [script]
    words += [word for mode in modes for word in ("--mode", str(mode))]
    words += ["--nproc", str(manifest.world_size)] if manifest.world_size > 1 else []
    words += ["--", *arguments] if arguments else []
    return shlex.join(words)

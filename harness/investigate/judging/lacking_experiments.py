"""The command that makes the experiments that a pair of runs lacks, ready to be typed."""

from __future__ import annotations

import shlex

from ...runs.recorded_run import RecordedRun
from ..evidence.pair_scores import spec_of


def command_for(a: RecordedRun, b: RecordedRun) -> str:
    """Return a command that investigates two runs.

    For runs of one investigation, the command continues it without running them again. Runs of two investigations, or
    an experiment and a run, become two modes of their script. Where they do not train one script in two modes, the
    command has a placeholder for the script.
    """
    first, second = a.manifest, b.manifest
    if first.in_process or second.in_process:
        return "numdrift investigate SCRIPT"
    if a.path.parent == b.path.parent and first.suffix == second.suffix:
        suffix = f" --suffix {first.suffix}" if first.suffix else ""
        return f"numdrift investigate {a.path.parent}{suffix}"
    modes = [str(spec_of(run)) for run in (a, b)]
    alike = ("script_sha256", "module", "arguments", "world_size")
    if first.mode == second.mode or any(getattr(first, field) != getattr(second, field) for field in alike):
        return "numdrift investigate SCRIPT"
    words = ["numdrift", "investigate"]
    words += ["-m", first.module] if first.module else [first.reproducer]
    words += [word for mode in modes for word in ("--mode", mode)]
    words += ["--nproc", str(first.world_size)] if first.world_size > 1 else []
    words += ["--", *first.arguments] if first.arguments else []
    return shlex.join(words)

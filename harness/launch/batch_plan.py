"""What a batch is asked to do, checked before anything is started."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import NumdriftError, UsageError
from ..records.experiment import Experiment
from ..records.mode_spec import ModeSpec
from ..records.run_config import DEFAULT_VALUE_BUDGET, FIRST_STEPS, LEVELS, NOISE_REPLAYS
from ..records.step_selection import KeepParams, StepSelection
from ..runs.manifest import read_manifest
from ..runs.run_layout import Investigation, RunFolder
from .batch_kernels import check_kernels
from .interpreters import check_interpreter

WITHOUT_COLLECTIVES = ("lazy", "xla")
"""Bases whose tensors no process group of torch.distributed takes."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One reproducer in some modes. `timeout` is in seconds a run, `value_budget` in bytes a run.

    `kernels` are the user's own, as (op, path); `trace_kernels` are ops whose first calls are written down.
    `resync` is the folder of another run's states; `positions` are all modes of the batch that this plan is a part of
    (empty: its own). `experiment` is what a plan of one mode makes for an investigation. `serve` is the path of a unix socket, for a plan of one mode. The other fields are those of
    `RunConfig`. Each run has `nproc` processes, its ranks. With
    `pass_through` the one run has our standard input.
    """

    script: Path
    modes: Sequence[ModeSpec]
    investigation: Investigation
    arguments: Sequence[str] = ()
    suffix: str = ""
    record: str = "params"
    steps: StepSelection = field(default_factory=StepSelection)
    keep_params: KeepParams = field(default_factory=KeepParams)
    value_budget: int = DEFAULT_VALUE_BUDGET
    timeout: float | None = None
    jobs: int = 1
    force: bool = False
    kernels: Sequence[tuple[str, Path]] = ()
    trace_kernels: Sequence[str] = ()
    graphs: bool = False
    graph_steps: StepSelection = FIRST_STEPS
    states: StepSelection | None = None
    outcomes: StepSelection | None = None
    resync: Path | None = None
    tapes: StepSelection | None = None
    noise_replays: int = NOISE_REPLAYS
    edge_replays: int = 0
    perturb: int | None = None
    seed_shift: int = 0
    until: int | None = None
    serve: Path | None = None
    positions: Sequence[str] = ()
    nproc: int = 1
    module: str = ""
    strict: bool = False
    pass_through: bool = False
    sketches: bool = False
    instruments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    experiment: Experiment | None = None


def check_plan(plan: BatchPlan) -> None:
    """Find what is wrong with a plan before any process starts. Raises UsageError."""
    check_script(plan.script)
    for spec in plan.modes:
        check_interpreter(spec)
    check_kernels(plan.modes, plan.kernels, plan.trace_kernels)
    if plan.record not in LEVELS:
        raise UsageError(f"--record {plan.record!r} is no level; the levels are {', '.join(LEVELS)}")
    if plan.record == "tensors" and not plan.steps.ranges:
        raise UsageError("--record tensors keeps every op's output: say of which steps, as in --steps 0,1")
    if plan.timeout is not None and not (plan.timeout > 0 and math.isfinite(plan.timeout)):
        raise UsageError(f"--timeout {plan.timeout:g} is no positive number of seconds")
    if plan.pass_through and (len(plan.modes) > 1 or plan.nproc > 1):
        raise UsageError("--pass-through runs the script as python would: give one mode, and one process")
    _check_processes(plan)
    _check_folder(plan)
    for spec in plan.modes:
        folder = plan.investigation.run(spec.name, plan.suffix)
        if plan.force:
            _refuse_another_run(folder, spec.name, plan.suffix)
        else:
            folder.refuse_collision()


def _check_processes(plan: BatchPlan) -> None:
    alone = next((spec for spec in plan.modes if spec.base in WITHOUT_COLLECTIVES), None)
    if plan.nproc > 1 and alone is not None:
        raise UsageError(
            f"mode {alone.name!r} cannot be run with --nproc {plan.nproc}: {alone.base} tensors have no collectives; "
            "leave the mode out"
        )


def check_script(script: Path) -> None:
    """Refuse what is no Python program. Raises UsageError."""
    if script.is_dir():
        raise UsageError(f"{script} is a folder; give the training script in it")
    try:
        source = script.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no script {script}; give the path of a Python training script") from None
    except OSError as error:
        raise UsageError(f"script {script} cannot be read: {error.strerror}") from None
    try:
        compile(source, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"line {line}: " if line else ""
        raise UsageError(
            f"{script} is no Python program ({where}{getattr(error, 'msg', error)}); give a training script"
        ) from None


def script_sha256(script: Path) -> str:
    return hashlib.sha256(script.read_bytes()).hexdigest()


def _refuse_another_run(folder: RunFolder, mode: str, suffix: str) -> None:
    """`cpu` with the suffix `a_b` and `cpu_a` with the suffix `b` have one folder: never replace the other."""
    if folder.manifest.exists():
        there = read_manifest(folder.path)
        if (there.mode, there.suffix) != (mode, suffix):
            raise UsageError(
                f"{folder.path} is the run of mode {there.mode!r} with the suffix {there.suffix!r}, "
                "which --force does not replace; choose another suffix"
            )


def _check_folder(plan: BatchPlan) -> None:
    folder = plan.investigation.path
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"{existing} cannot be written to; choose another folder with --out")
    for run in sorted(folder.glob("*/run.json")):
        try:
            other = Path(read_manifest(run.parent).reproducer)
        except NumdriftError:
            continue
        if other.resolve() != plan.script.resolve():
            raise UsageError(f"{folder} holds runs of {other}; choose another investigation with --name")

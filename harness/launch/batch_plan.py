"""The request of a batch, the script that it runs, and the errors in it that are found before anything starts."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from ..errors import NumdriftError, UsageError, nearest
from ..records.experiment import Experiment
from ..records.mode_spec import ModeSpec
from ..records.run_request import LEVELS, RunRequest
from ..records.step_selection import StepSelection
from ..runs.manifest import read_manifest
from ..runs.recorded_run import load_run
from ..runs.run_layout import STATES, InvestigationFolder, check_name, choose_investigation
from ..runs.step_outcomes import state_steps
from .batch_kernels import check_kernels
from .guest_process import check_interpreter
from .xla_environment import in_their_interpreters


@dataclass(frozen=True, slots=True)
class BatchPlan(RunRequest):
    """One reproducer in some modes; the plan is also the request of what each run records. `timeout` is in seconds a
    run.

    `kernels` are the user's own, as (op, path). `resync` is the folder of another run's states, from which the steps
    that have one there start, and `rejoin` that of the run's own states of an earlier time, from which it goes on after
    such a step. `folder` is the current one of the script, and `inherited` are its variables, None for ours.
    `positions` are all modes of the batch that this plan is a part of (empty: its own). In a plan of one mode,
    `experiment` is the experiment of an investigation that it makes, and `serve` the path of a unix socket; a
    laboratory sets one for a plan that is `held`. Each run has `nproc` processes, its ranks. With `pass_through` the
    one run has our standard input. `interpreters` are sentences on the interpreters of the modes."""

    script: Path
    modes: Sequence[ModeSpec]
    investigation: InvestigationFolder
    arguments: Sequence[str] = ()
    suffix: str = ""
    timeout: float | None = None
    jobs: int = 1
    force: bool = False
    kernels: Sequence[tuple[str, Path]] = ()
    resync: Path | None = None
    rejoin: Path | None = None
    folder: Path | None = None
    inherited: Mapping[str, str] | None = None
    serve: Path | None = None
    held: bool = False
    positions: Sequence[str] = ()
    nproc: int = 1
    pass_through: bool = False
    experiment: Experiment | None = None
    interpreters: Sequence[str] = ()


def planned(
    script: Path | str | None,
    module: str | None,
    arguments: Sequence[str],
    modes: Sequence[ModeSpec],
    out: Path | str,
    name: str | None,
    *,
    suffix: str = "",
    resync: Path | str | None = None,
    **fields: Any,
) -> BatchPlan:
    """Make a plan from a user's words: a script (or module) and its arguments, and the name for its investigation.

    With `resync`, a run, its steps start from the states that this run kept. Their outcomes are kept then, since they
    are the purpose of a resync. `fields` are fields of the plan. Raises UsageError, also for a run that kept no
    state of a requested step.
    """
    suffix = check_name("--suffix", suffix) if suffix else ""
    if fields.get("nproc", 1) > 1 and fields.get("max_seconds") is not None:
        raise UsageError(
            f"--max-seconds would end each of --nproc {fields['nproc']} processes at a step of its own, and the others "
            "would wait for it; end them after so many steps, as with --max-steps 20"
        )
    reproducer, words = asked_for(None if script is None else str(script), module, tuple(arguments))
    interpreters = in_their_interpreters(modes, numpy=_mentions_numpy(reproducer.path))
    plan = BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        modes=interpreters.modes,
        interpreters=interpreters.said,
        investigation=choose_investigation(Path(out), reproducer.named_after, name, suffix),
        arguments=words,
        suffix=suffix,
        **fields,
    )
    if resync is None:
        return plan
    run = load_run(resync)
    # A range of steps takes the states that exist in it; a step that is named by itself has to have one.
    kept_steps = [step for step in state_steps(run.path) if step in plan.steps]
    lacking = [first for first, last in plan.steps.ranges if first == last and first not in kept_steps]
    if not kept_steps or lacking:
        missing = f"no state of step {lacking[0]}" if lacking else "no states to start these steps from"
        raise UsageError(
            f"{resync} kept {missing}; run it with --states {lacking[0] if lacking else 'all'}, under another --name"
        )
    outcomes = StepSelection(tuple((step, step) for step in kept_steps))
    return replace(plan, resync=run.path / STATES, outcomes=outcomes)


def check_plan(plan: BatchPlan) -> None:
    """Find what is wrong with a plan before any process starts. Raises UsageError."""
    check_script(plan.script)
    if plan.folder is not None and not plan.folder.is_dir():
        raise UsageError(
            f"{plan.folder}, where the script was run, is no longer there, and what it reads by relative paths; "
            "put it back, or run the modes anew under another --name"
        )
    # Modes with another Python are asked for their versions first: everything below assumes that they are usable.
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
    alone = next((spec for spec in plan.modes if not spec.capabilities.collectives), None)
    if plan.nproc > 1 and alone is not None:
        raise UsageError(
            f"mode {alone.name!r} cannot be run with --nproc {plan.nproc}: {alone.base} tensors have no collectives; "
            "leave the mode out"
        )
    # The folder need not exist yet: the nearest existing folder above it decides.
    folder = existing = plan.investigation.path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"{existing} cannot be written to; choose another folder with --out")
    for run in sorted(folder.glob("*/run.json")):
        try:
            script = Path(read_manifest(run.parent).reproducer)
        except NumdriftError:
            continue  # a damaged run says nothing about its script, and stands in nobody's way
        if script.resolve() != plan.script.resolve():
            raise UsageError(f"{folder} holds runs of {script}; choose another investigation with --name")
    for spec in plan.modes:
        of_run = plan.investigation.run(spec.name, plan.suffix)
        if not plan.force:
            of_run.refuse_collision()
        elif of_run.manifest.exists():
            # `cpu` with the suffix `a_b` and `cpu_a` with the suffix `b` have one folder: never replace the other.
            manifest = read_manifest(of_run.path)
            if (manifest.mode, manifest.suffix) != (spec.name, plan.suffix):
                raise UsageError(
                    f"{of_run.path} is the run of mode {manifest.mode!r} with the suffix {manifest.suffix!r}, "
                    "which --force does not replace; choose another suffix"
                )


def check_script(script: Path) -> None:
    """Refuse a file that is no Python program. Raises UsageError."""
    if script.is_dir():
        raise UsageError(f"{script} is a folder; give the training script in it")
    try:
        source = script.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no script {script}; give the path of a Python training script") from None
    except OSError as error:
        raise UsageError(f"script {script} cannot be read: {error.strerror}") from None
    try:
        # `dont_inherit`, else the script would be read with this module's `from __future__ import annotations`.
        compile(source, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"line {line}: " if line else ""
        raise UsageError(
            f"{script} is no Python program ({where}{getattr(error, 'msg', error)}); give a training script"
        ) from None


def script_sha256(script: Path) -> str:
    return hashlib.sha256(script.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Reproducer:
    """The file to run, and the name of its module where it was requested as one (else empty)."""

    path: Path
    module: str = ""

    @property
    def named_after(self) -> Path:
        """The name that an investigation of it gets: for `python -m pkg` the package, not its `__main__.py`."""
        return Path(self.module.rpartition(".")[2]) if self.module else self.path


def asked_for(script: str | None, module: str | None, arguments: Sequence[str]) -> tuple[Reproducer, tuple[str, ...]]:
    """Return the reproducer and its arguments from a command line; behind `-m` the first argument replaces a script.

    Raises UsageError when neither is given or the module is not found.
    """
    if module is None:
        if script is None:
            raise UsageError("no script is given; give the path of a training script, or -m and a module's name")
        return Reproducer(find_script(script)), tuple(arguments)
    return find_module(module), (*([] if script is None else [script]), *arguments)


def _mentions_numpy(script: Path) -> bool:
    """Say whether the name occurs in the script; False for a script that cannot be read, which is reported
    elsewhere."""
    try:
        return b"numpy" in script.read_bytes()
    except OSError:
        return False


def find_script(text: str) -> Path:
    """Return the path as it is, or that of a console script on the PATH whose first line names a Python interpreter."""
    path = Path(text)
    if path.exists() or os.sep in text:
        return path
    executable = shutil.which(text)
    if executable is not None:
        # A console script that pip has made begins `#!/.../bin/python`; a binary has no first line worth reading.
        with Path(executable).open("rb") as file:
            first_line = file.readline(256)
        if first_line.startswith(b"#!") and b"python" in first_line:
            return Path(executable)
        raise UsageError(f"{text} is {executable}, which is no Python program; give the training script that it starts")
    return path


def find_module(name: str) -> Reproducer:
    """Return the file that `python -m NAME` would run from here. Nothing of the package is imported.

    Raises UsageError.
    """
    further = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    folders: Sequence[str] = [str(Path.cwd()), *further, *sys.path]
    spec: ModuleSpec | None = None
    parts = name.split(".")
    # `a.b.c` is found part by part, each in the folders of the package before it: `importlib.util.find_spec` would
    # import `a` and `a.b`, and with them the user's code.
    for place in range(len(parts)):
        dotted = ".".join(parts[: place + 1])
        spec = PathFinder.find_spec(dotted, folders) if all(parts) else None
        if spec is None:
            beside = {path.stem for folder in folders[:1] for path in Path(folder).glob("*.py")}
            hint = nearest(parts[place], beside) if beside else "start it where `python -m` finds it"
            raise UsageError(f"there is no module {dotted!r} to run with -m from {Path.cwd()}; {hint}")
        folders = list(spec.submodule_search_locations or ())
    if spec is not None and spec.submodule_search_locations is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", folders)
        if spec is None:
            raise UsageError(f"{name} is a package without __main__.py; name the module in it that trains")
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(f"module {name!r} has no Python source; give a training script")
    return Reproducer(Path(spec.origin), name)

"""The request for a batch, the script that it runs, and the checks for errors before anything starts."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from ..errors import NumdriftError, UsageError, nearest
from ..records.modes.mode_spec import ModeSpec, parse_mode
from ..records.results.experiment import Experiment
from ..records.run.run_request import LEVELS, RunRequest
from ..records.run.step_selection import StepSelection
from ..runs.manifest import holds_no_step, read_manifest
from ..runs.recorded_run import load_run
from ..runs.run_layout import STATES, InvestigationFolder, check_name, choose_investigation
from ..runs.step_outcomes import state_steps
from .batch_kernels import check_kernels
from .checked_interpreter import check_interpreter
from .script_places import ScriptPlace, places_of
from .training_request import TrainingRequest
from .xla_environment import in_their_interpreters


@dataclass(frozen=True, slots=True)
class BatchPlan(RunRequest):
    """One reproducer in some modes. The plan is also the request that states what each run records.

    timeout: seconds per run
    kernels: the user's own kernels, as (op, path)
    resync: folder of another run's states; each step with a state in this folder starts from that state
    rejoin: folder of states that an earlier run of the same mode kept; the run continues from them after a resynced
        step
    folder: working directory of the script
    inherited: environment variables of the script; None for those of this process
    positions: all modes of the batch that this plan is part of; empty if the plan is the whole batch
    experiment: in a plan of one mode, the experiment of an investigation that it runs
    serve: in a plan of one mode, the path of a unix socket; a laboratory sets one for a plan that is `held`
    nproc: number of processes (ranks) per run
    machines: number of machines that these processes run on
    pass_through: true if the one run reads this process's standard input
    interpreters: sentences about the interpreters and revisions of the modes
    import_paths, beside, revision: see `ScriptPlace`
    places: the script, folder and import paths of the modes that state their own, by `ModeSpec.place`
    """

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
    machines: int = 1
    pass_through: bool = False
    experiment: Experiment | None = None
    interpreters: Sequence[str] = ()
    import_paths: Sequence[str] = ()
    beside: Path | None = None
    revision: str = ""
    places: Mapping[tuple[str | None, ...], ScriptPlace] = field(default_factory=dict)

    def place(self, spec: ModeSpec) -> ScriptPlace:
        """Return the script and the folder of a mode."""
        folder = self.folder or Path.cwd()
        own = ScriptPlace(self.script, folder, self.import_paths, self.beside, self.revision)
        return self.places.get(spec.place, own)


def planned(
    request: TrainingRequest, *, suffix: str = "", resync: Path | str | None = None, **fields: Any
) -> BatchPlan:
    """Return the plan for the training runs that a user requests; `fields` are further fields of the plan.

    `resync` is a run. The plan's steps start from the states that this run kept, and the outcomes of these steps are
    kept: they are the purpose of a resync. Raises UsageError, for example if the run kept no state of a requested step.
    """
    suffix = check_name("--suffix", suffix) if suffix else ""
    if request.nproc > 1 and "max_seconds" in request.run:
        raise UsageError(
            f"with {request.nproc} processes, --max-seconds would end them at different steps, and the others would "
            "wait for the one that ended first; limit the steps instead, as with --max-steps 20"
        )
    reproducer, words = reproducer_of(request.script, request.module, request.arguments)
    interpreters = in_their_interpreters(request.modes, numpy=_mentions_numpy(reproducer.path))
    own_script = next((spec for spec in interpreters.modes if spec.script), None)
    if reproducer.module and own_script is not None:
        raise UsageError(f"mode {own_script.name!r} states script={own_script.script}, but -m names a module: use one")
    places, sentences = places_of(interpreters.modes, reproducer.path, request.out)
    plan = BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        modes=interpreters.modes,
        interpreters=[*interpreters.sentences, *sentences],
        places=places,
        investigation=choose_investigation(request.out, reproducer.named_after, request.name, suffix),
        arguments=words,
        suffix=suffix,
        kernels=request.kernels,
        nproc=request.nproc,
        timeout=request.timeout,
        jobs=request.jobs,
        strict=request.strict,
        force=request.force,
        **{**request.run, **fields},
    )
    if resync is None:
        return plan
    run = load_run(resync)
    # A range of steps uses the states that exist in it; a step that is named explicitly must have a state.
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
    """Check a plan before any process starts. Raises UsageError."""
    for script in dict.fromkeys(plan.place(spec).script for spec in plan.modes):
        check_script(script)
    if plan.folder is not None and not plan.folder.is_dir():
        raise UsageError(
            f"{plan.folder}, the folder in which the script was run, no longer exists, and neither do the files that "
            "the script reads by relative paths; restore the folder, or run the modes again under another --name"
        )
    # The versions of the modes' interpreters are checked first: all later checks assume usable interpreters.
    for spec in plan.modes:
        check_interpreter(spec)
    check_kernels(plan.modes, plan.kernels, plan.trace_kernels)
    if plan.record not in LEVELS:
        raise UsageError(f"--record {plan.record!r} is not a level; the levels are {', '.join(LEVELS)}")
    if plan.record == "tensors" and plan.steps.is_everything:
        raise UsageError("--record tensors keeps every op's output: name the steps, as in --steps 0,1")
    if plan.timeout is not None and not (plan.timeout > 0 and math.isfinite(plan.timeout)):
        raise UsageError(f"--timeout {plan.timeout:g} is not a positive number of seconds")
    if plan.pass_through and (len(plan.modes) > 1 or plan.nproc > 1):
        raise UsageError("--pass-through runs the script as python would: give only one mode and one process")
    alone = next((spec for spec in plan.modes if not spec.capabilities.collectives), None)
    if plan.nproc > 1 and alone is not None:
        raise UsageError(
            f"mode {alone.name!r} cannot be run with --nproc {plan.nproc}: {alone.base} tensors have no collectives; "
            "leave the mode out"
        )
    _check_folder(plan)


def _check_folder(plan: BatchPlan) -> None:
    """Check that the runs can be written and that they replace no other runs. Raises UsageError."""
    # The folder need not exist yet: the nearest existing parent decides.
    folder = existing = plan.investigation.path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"{existing} cannot be written to; choose another folder with --out")
    for run in sorted(folder.glob("*/run.json")) if plan.experiment is None else ():
        try:
            manifest = read_manifest(run.parent)
            spec, script = parse_mode(manifest.spec), Path(manifest.reproducer)
        except NumdriftError:
            continue  # a damaged run does not name its script, and prevents nothing
        if not (spec.script or spec.git or manifest.elsewhere) and script.resolve() != plan.script.resolve():
            raise UsageError(f"{folder} holds runs of {script}; choose another investigation with --name")
    for spec in plan.modes:
        of_run = plan.investigation.run(spec.name, plan.suffix)
        if not plan.force:
            if not holds_no_step(of_run):
                of_run.refuse_collision()
        elif of_run.manifest.exists():
            # `cpu` with the suffix `a_b` and `cpu_a` with the suffix `b` share one folder: neither may replace the
            # other.
            manifest = read_manifest(of_run.path)
            if (manifest.mode, manifest.suffix) != (spec.name, plan.suffix):
                raise UsageError(
                    f"{of_run.path} is the run of mode {manifest.mode!r} with the suffix {manifest.suffix!r}, "
                    "which --force does not replace; choose another suffix"
                )


def check_script(script: Path) -> None:
    """Check that a file is a Python program. Raises UsageError."""
    if script.is_dir():
        raise UsageError(f"{script} is a folder; give the training script in it")
    try:
        source = script.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no script {script}; give the path of a Python training script") from None
    except OSError as error:
        raise UsageError(f"script {script} cannot be read: {error.strerror}") from None
    try:
        # Without `dont_inherit` the script would be compiled with this module's `from __future__ import annotations`.
        compile(source, str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"line {line}: " if line else ""
        raise UsageError(
            f"{script} is not a Python program ({where}{getattr(error, 'msg', error)}); give a training script"
        ) from None


def script_sha256(script: Path) -> str:
    return hashlib.sha256(script.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Reproducer:
    """The file to run, and the name of its module if it was requested as a module (otherwise empty)."""

    path: Path
    module: str = ""

    @property
    def named_after(self) -> Path:
        """The path that names the investigation: for `python -m pkg` the package, not its `__main__.py`."""
        return Path(self.module.rpartition(".")[2]) if self.module else self.path


def reproducer_of(
    script: str | None, module: str | None, arguments: Sequence[str]
) -> tuple[Reproducer, tuple[str, ...]]:
    """Return the reproducer and its arguments from a command line. With `-m`, `script` is the module's first argument.

    Raises UsageError when neither is stated or the module is not found.
    """
    if module is None:
        if script is None:
            raise UsageError("no script is given; give the path of a training script, or -m and a module's name")
        return Reproducer(find_script(script)), tuple(arguments)
    return find_module(module), (*([] if script is None else [script]), *arguments)


def _mentions_numpy(script: Path) -> bool:
    """Check whether the word `numpy` occurs in the script.

    Return False for an unreadable script, which is reported elsewhere.
    """
    try:
        return b"numpy" in script.read_bytes()
    except OSError:
        return False


def find_script(text: str) -> Path:
    """Return the path as it is, or the path of a console script on the PATH whose first line names Python."""
    path = Path(text)
    if path.exists() or os.sep in text:
        return path
    executable = shutil.which(text)
    if executable is not None:
        # A console script written by pip begins with `#!/.../bin/python`; a binary does not.
        with Path(executable).open("rb") as file:
            first_line = file.readline(256)
        if first_line.startswith(b"#!") and b"python" in first_line:
            return Path(executable)
        raise UsageError(
            f"{text} is {executable}, which is not a Python program; give the training script that it starts"
        )
    return path


def find_module(name: str) -> Reproducer:
    """Return the file that `python -m NAME` would run in this folder, without importing anything from the package.

    Raises UsageError.
    """
    further = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    folders: Sequence[str] = [str(Path.cwd()), *further, *sys.path]
    spec: ModuleSpec | None = None
    parts = name.split(".")
    # `a.b.c` is found part by part, each in the folders of the package before it. `importlib.util.find_spec` would
    # import `a` and `a.b`, and thereby run the user's code.
    for place in range(len(parts)):
        dotted = ".".join(parts[: place + 1])
        spec = PathFinder.find_spec(dotted, folders) if all(parts) else None
        if spec is None:
            beside = {path.stem for folder in folders[:1] for path in Path(folder).glob("*.py")}
            hint = nearest(parts[place], beside) if beside else "start numdrift in a folder where `python -m` finds it"
            raise UsageError(f"there is no module {dotted!r} to run with -m from {Path.cwd()}; {hint}")
        folders = list(spec.submodule_search_locations or ())
    if spec is not None and spec.submodule_search_locations is not None:
        spec = PathFinder.find_spec(f"{name}.__main__", folders)
        if spec is None:
            raise UsageError(f"{name} is a package without __main__.py; name the module in it that trains")
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(f"module {name!r} has no Python source; give a training script")
    return Reproducer(Path(spec.origin), name)

"""The laboratory, which executes the runs that an investigation needs and reuses existing ones."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from ...errors import NumdriftError, UsageError
from ...launch.batch_plan import BatchPlan, check_plan, script_sha256
from ...launch.execute_batch import FinishedRun, execute_together
from ...launch.guest_process import COMPILER, EAGER, Guest, environment
from ...launch.preloaded import PreloadedProcesses
from ...launch.prepared_runs import run_config
from ...launch.running_process import Running
from ...launch.supervise import Reporter
from ...launch.workers import Workers
from ...localize.scripts.script_interpreter import ScriptInterpreter
from ...records.modes.mode_spec import ModeSpec
from ...records.results.experiment import Experiment
from ...records.run.run_config import RunConfig
from ...records.run.step_selection import KeepParams, StepSelection
from ...runs.recorded_run import RecordedRun, load_run
from ...runs.run_layout import InvestigationFolder, RunFolder
from ..evidence.pair_evidence import EvidenceFolder
from .restored import variables_of
from .search_time import SearchTime


class Interrupted(Exception):
    """Ctrl-C ended a round of runs. Complete runs are kept, and the command reuses them when it is run again."""


class Progress(Protocol):
    """Receives reports on the progress of an investigation."""

    def round(self, title: str, names: Sequence[str]) -> AbstractContextManager[Reporter]:
        """Begin a round of runs; the returned reporter is notified of each run."""

    def say(self, text: str) -> None:
        """Report something that a waiting user should know."""

    def expects(self, seconds: float) -> None:
        """Report that the rest of the investigation takes about so many seconds."""


@dataclass(frozen=True, slots=True)
class Round:
    """Experiments that are executed together, as many at a time as the laboratory has jobs. Each plan has one mode."""

    title: str
    plans: Sequence[BatchPlan] = ()


@dataclass
class Laboratory:
    """A place that runs experiments beside the recorded runs. All of its processes end when its context is left.

    jobs: the number of experiments that run at a time
    timeout: the seconds that a run may take
    made, steps: the numbers of runs and of steps that the laboratory executed itself
    reused: the number of existing runs that were used instead
    processes: the preloaded processes that execute the runs
    workers: the processes of runs that stay alive and execute calls on request
    investigate: the method, by which a question investigates further runs
    search: the time that the search for causes may take
    frozen: the name of a reference that was trained elsewhere; no experiment trains it here
    """

    progress: Progress
    jobs: int
    timeout: float | None
    made: int = 0
    reused: int = 0
    steps: int = 0
    processes: PreloadedProcesses = field(default_factory=lambda: PreloadedProcesses(lasting=True))
    workers: Workers = field(default_factory=Workers)
    began: float = field(default_factory=time.monotonic)
    investigate: Callable[..., Any] | None = None
    search: SearchTime = field(default_factory=SearchTime)
    frozen: str = ""
    _interpreter: ScriptInterpreter | None = field(default=None, init=False)
    _memory: dict[str, Mapping[str, int]] = field(default_factory=dict, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.workers.close()
        if self._interpreter is not None:  # before the process from which it was forked
            self._interpreter.close()
        self.processes.close()

    def begin_anew(self) -> None:
        """Begin another investigation in the same processes: its time and its counts begin at zero."""
        self.began, self.search = time.monotonic(), SearchTime()
        self.made = self.reused = self.steps = 0

    @property
    def elapsed(self) -> float:
        """The seconds since the laboratory was opened."""
        return round(time.monotonic() - self.began, 3)

    @property
    def has_time(self) -> bool:
        """True until the search for causes has used up its time."""
        return self.elapsed < self.search.limit

    @property
    def seconds_left(self) -> float | None:
        """The seconds left for a step of the search; None without a limit."""
        return self.search.left(self.elapsed)

    def scripts(self, reference: ModeSpec, others: Sequence[ModeSpec]) -> Path:
        """Return the address of the interpreter that executes the scripts of culprits.

        The first call starts the interpreter.
        """
        if self._interpreter is None:
            compiles = any(spec.capabilities.compiles for spec in (reference, *others))
            imports = COMPILER if compiles else EAGER
            variables = environment(reference, os.environ)
            guest = Guest(Path(), variables, imports=imports)
            self._interpreter = ScriptInterpreter(imports, variables, partial(self.processes.start_isolated, guest))
        return self._interpreter.address

    def free(self, plan: BatchPlan) -> list[RecordedRun]:
        """Return the runs of a plan's modes; execute those that do not exist."""
        missing = [spec for spec in plan.modes if plan.force or not self._is_recorded(plan, spec.name)]
        for spec in missing:
            folder = plan.investigation.run(spec.name, plan.suffix)
            if folder.manifest.exists() and not plan.force:
                previous = self._run_of_request(plan, spec, folder)
                if previous is not None and previous.manifest.interrupted:
                    self.progress.say(f"{folder.path} was interrupted and is run again")
                    _remove(folder)
                    continue
                raise UsageError(
                    f"{folder.path} is the run of a different script, mode or arguments, or it failed: choose another "
                    "--name, replace it with --force, or investigate the existing runs with `numdrift investigate "
                    f"{plan.investigation.path}`"
                )
        if missing:
            position = [spec.name for spec in plan.modes]
            self._execute("modes", [replace(plan, modes=missing, positions=position)])
        self.reused += len(plan.modes) - len(missing)
        return [load_run(plan.investigation.run(spec.name, plan.suffix).path) for spec in plan.modes]

    def make(self, experiments: Round, *, anew: bool = False) -> None:
        """Execute the experiments of a round that do not exist yet, or all of them if `anew`. Raises Interrupted."""
        able = [plan for plan in experiments.plans if not self.frozen or _run_of(plan) != self.frozen]
        plans = [replace(plan, timeout=self.timeout) for plan in able]
        missing = [plan for plan in plans if anew or not self._is_recorded(plan, plan.modes[0].name)]
        self.reused += len(plans) - len(missing)
        for place, plan in enumerate(missing):  # an existing folder is incomplete, or belongs to another request
            folder = plan.investigation.run(plan.modes[0].name, "")
            self.workers.let_go(folder.path)
            _remove(folder)
            if plan.held:
                missing[place] = replace(plan, serve=self.workers.address())
        if missing:
            self._execute(experiments.title, missing)
        crowded = [plan for plan in missing if self._lacked_memory(plan)]
        if crowded:  # each mode's first run had its device to itself, and enough memory
            names = " and ".join(plan.modes[0].name for plan in crowded)
            self.progress.say(f"{names} ran out of memory beside other processes: running again, one at a time")
            self.workers.close_processes()
            for plan in crowded:
                folder = plan.investigation.run(plan.modes[0].name, "")
                _remove(folder)
                self._execute(experiments.title, [replace(plan, serve=self.workers.address()) if plan.held else plan])

    def _lacked_memory(self, plan: BatchPlan) -> bool:
        """Check whether an experiment on an accelerator ran out of memory."""
        folder = plan.investigation.run(plan.modes[0].name, plan.suffix)
        on_device = plan.modes[0].accelerator is not None
        return on_device and folder.manifest.exists() and load_run(folder.path).manifest.status == "out-of-memory"

    def _execute(self, title: str, plans: Sequence[BatchPlan]) -> None:
        for plan in plans:
            check_plan(plan)
        names = [spec.name for plan in plans for spec in plan.modes]
        with self.progress.round(title, names) as reporter:
            keeping = {plan.modes[0].name: plan for plan in plans if plan.serve is not None}

            def keep(name: str, process: Running) -> None:
                plan = keeping[name]
                assert plan.serve is not None
                self.workers.keep(plan.investigation.run(name, plan.suffix).path, process, plan.serve)

            together = self.has_room([spec for plan in plans for spec in plan.modes])
            result = execute_together(plans, reporter, self.jobs, self.processes, keep, share_devices=together)
        for run in result.runs:
            self.made += 1
            self.steps += run.manifest.steps
            self._note_memory(run, plans)
        if result.interrupted:
            raise Interrupted

    def has_room(self, specs: Sequence[ModeSpec]) -> bool:
        """Check whether the accelerators have room for one more process of each of these modes at once.

        A process is assumed to need twice the highest peak of a training run on its device, because the work beside a
        run needs more memory than the run. The processes together may take a quarter of each device's memory.
        A device has no room while its peak is unknown.
        """
        devices = [device for spec in specs if (device := spec.accelerator) is not None]
        peaks = [self._memory[device] for device in devices if device in self._memory]
        needed = sum(2 * memory["reserved_peak"] for memory in peaks)
        return len(peaks) == len(devices) and all(needed <= memory["total"] // 4 for memory in peaks)

    def _note_memory(self, run: FinishedRun, plans: Sequence[BatchPlan]) -> None:
        """Note the peak of accelerator memory that a run used."""
        specs = {spec.name: spec for plan in plans for spec in plan.modes}
        device, memory = specs[run.manifest.mode].accelerator, (run.journal.end or {}).get("device_memory", {})
        if device is not None and {"reserved_peak", "total"} <= memory.keys():
            before = self._memory.get(device, memory)
            self._memory[device] = max(before, memory, key=lambda usage: usage["reserved_peak"])

    def _is_recorded(self, plan: BatchPlan, name: str) -> bool:
        """Check whether a run of that name exists, ended with complete or non-finite results, and was made for the same
        request."""
        spec = next(candidate for candidate in plan.modes if candidate.name == name)
        folder = plan.investigation.run(name, plan.suffix)
        run = self._run_of_request(plan, spec, folder)
        return run is not None and run.manifest.got_through

    def _run_of_request(self, plan: BatchPlan, spec: ModeSpec, folder: RunFolder) -> RecordedRun | None:
        """Return the run in the folder; None unless it was made for the same request and from the same script."""
        if not folder.manifest.exists():
            return None
        try:
            run = load_run(folder.path)
            recorded = RunConfig.load(folder.config)
        except (NumdriftError, OSError, ValueError, TypeError, KeyError):
            return None
        wanted = run_config(plan, spec, folder)
        if recorded.until is None:  # a complete run has all results of one that ends earlier
            wanted = replace(wanted, until=None)
        if not wanted.resync:  # keeping more steps than requested does not change the run
            for name in ("states", "outcomes", "tapes"):
                more, enough = getattr(recorded, name), getattr(wanted, name)
                if more is not None and (enough is None or more.covers(enough)):
                    wanted = replace(wanted, **{name: more})
            wanted = replace(wanted, keep_inputs=wanted.keep_inputs or recorded.keep_inputs)
            if wanted.measured is not None and (recorded.measured is None or recorded.measured.covers(wanted.measured)):
                wanted = replace(wanted, measured=recorded.measured)
        if not recorded.quick_tapes:  # then no tape was left out
            wanted = replace(wanted, quick_tapes=False)
        unchanged = run.manifest.script_sha256 == script_sha256(plan.place(spec).script)
        # Compare as JSON, in which a tuple is a list. The folders of the script and of its output may differ.
        elsewhere = {"script": "", "invoked": "", "journal": "", "serve": "", "checkpoints": 0}
        elsewhere |= {"folder": "", "files": None, "keep_files": False, "import_paths": [], "beside": "", "earlier": []}
        # The folder of the whole investigation may differ, too.
        elsewhere |= {name: "/".join(Path(getattr(wanted, name)).parts[-2:]) for name in ("resync", "rejoin")}
        for name in ("resync", "rejoin"):
            if "/".join(Path(getattr(recorded, name)).parts[-2:]) != elsewhere[name]:
                return None
        recorded_json, wanted_json = (
            json.loads(json.dumps(config.to_json())) | elsewhere for config in (recorded, wanted)
        )
        return run if unchanged and recorded_json == wanted_json else None


def _run_of(plan: BatchPlan) -> str:
    return "" if plan.experiment is None else plan.experiment.run


def _remove(folder: RunFolder) -> None:
    if folder.manifest.exists():
        shutil.rmtree(folder.path)
    folder.pickle.unlink(missing_ok=True)


def repeating(run: RecordedRun, experiment: Experiment, **changes: Any) -> BatchPlan:
    """Return a plan that runs the recorded run again as an experiment, with changes to its mode (`spec`) or to its
    recorder."""
    spec = changes.pop("spec", None) or RunConfig.load(run.path / "config.json").mode
    options: dict[str, Any] = {
        "modes": [replace(spec, name=experiment.name)],
        "experiment": experiment,
        "investigation": InvestigationFolder(EvidenceFolder.of(run).path),
        "keep_params": KeepParams.parse("last"),  # its results are in states and outcomes, not in the journal
    }
    return trained_anew(run, **{**options, **changes})


def trained_anew(run: RecordedRun, **changes: Any) -> BatchPlan:
    """Return a plan that trains as a recorded run did, in the modes and the folder that `changes` state."""
    config = RunConfig.load(run.path / "config.json")
    # A limit in seconds would end the new run at a different step, so the recorded number of steps is the limit.
    timed = "max_seconds" in run.journal.limits
    options: dict[str, Any] = {
        "script": Path(config.script),
        "module": config.module,
        "subject": config.subject,
        "strict": config.strict,
        "arguments": config.arguments,
        "in_place": config.in_place,
        "folder": Path(config.folder) if config.folder else None,
        "import_paths": config.import_paths,
        "beside": Path(config.beside) if config.beside else None,
        "revision": config.revision,
        "inherited": variables_of(run),
        "kernels": [(op, Path(path)) for op, path in config.kernels],
        "max_steps": run.manifest.steps if timed else config.max_steps,
        "nproc": config.world_size,
    }
    return BatchPlan(**{**options, **changes})


def begun_in(states: Path, run: RecordedRun, experiment: Experiment, steps: Sequence[int], **changes: Any) -> BatchPlan:
    """Return a plan that runs the recorded run again and ends after the last of `steps`.

    Each of these steps begins in its state from the folder `states`.
    """
    return repeating(
        run, experiment, **{"outcomes": StepSelection.of(steps), "resync": states, "until": max(steps), **changes}
    )

"""Executes a batch: prepares its runs, runs their processes, and records how they ended."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ..errors import JournalError, NumdriftError, UsageError
from ..graphs.run_graphs import RunGraphs
from ..records import frames
from ..records.run.adoption_facts import ADOPTION, DOUBT
from ..runs.journal import Journal
from ..runs.manifest import RunManifest
from ..runs.pickles import write_pickle
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import RunFolder
from .batch_kernels import inside_kernel, never_executed, swaps_of_run
from .batch_plan import BatchPlan, check_plan
from .guest_process import Launch, Processes, guest_of
from .own_folders import began, keep_written, run_files, throw_away
from .preloaded import PreloadedProcesses
from .prepared_runs import PreparedRun, prepare_run, withdraw
from .run_ending import Ending, ending, run_manifest
from .running_process import ProcessEnd, Running
from .supervise import Reporter, supervise

REMOVED = (
    "the script has removed the folder of its own run, with all records; choose an --out folder from which it "
    "removes nothing"
)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended, and its folder."""

    folder: RunFolder
    manifest: RunManifest
    journal: Journal


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The runs in the order of the plan's modes. `interrupted` is true if Ctrl-C ended the batch."""

    runs: Sequence[FinishedRun]
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """The exit code of the batch.

        0 if every run completed, 2 if a mode's specification was wrong or had no effect, 3 if a run failed, 130 if the
        batch was interrupted.
        """
        if self.interrupted:
            return 130
        refused = [run for run in self.runs if (run.journal.end or {}).get("status") == frames.REFUSED]
        if any(run.manifest.exit_code == UsageError.exit_code for run in refused):
            return UsageError.exit_code
        if any(run.manifest.problems for run in self.runs):
            return UsageError.exit_code
        return 3 if any(run.manifest.failed or not run.manifest.steps for run in self.runs) else 0


def execute(plan: BatchPlan, reporter: Reporter) -> BatchResult:
    """Run a plan to its end. If a mode fails, the failure is recorded and the other modes continue.

    Raises UsageError before anything is started.
    """
    return execute_together([plan], reporter, plan.jobs)


def execute_together(
    plans: Sequence[BatchPlan],
    reporter: Reporter,
    jobs: int,
    processes: Processes | None = None,
    keep: Callable[[str, Running], None] | None = None,
    *,
    share_devices: bool = False,
) -> BatchResult:
    """Run several plans together.

    At most `jobs` processes run at once, and only one on each accelerator unless `share_devices` is true. The names of
    all modes must differ.

    When a script has ended and its process stays alive as a worker, the process is passed to `keep` with the name of
    its mode.

    Raises UsageError before anything is started.
    """
    # All plans are checked before the first folder is created: a rejected plan leaves nothing behind.
    for plan in plans:
        check_plan(plan)
    starts = {path: began(path) for path in {plan.investigation.path for plan in plans}}
    prepared = {
        spec.name: prepare_run(plan, spec, starts[plan.investigation.path]) for plan in plans for spec in plan.modes
    }
    if len(prepared) != sum(len(plan.modes) for plan in plans):
        raise ValueError(f"two modes have the same name: {[spec.name for plan in plans for spec in plan.modes]}")
    finished: dict[str, FinishedRun] = {}
    held_names: set[str] = set()

    def keep_process(name: str, process: Running) -> None:
        assert keep is not None
        held_names.add(name)
        keep(name, process)

    def write_down(launch: Launch, end: ProcessEnd) -> None:
        run = prepared[launch.name]
        finished[launch.name] = close_run(run, end)
        if run.config.keep_files:
            keep_written(run.folder.path, run.config.files)
        elif launch.name not in held_names:  # a worker still uses these files
            throw_away(run.folder.path)

    launches = [run.launch for run in prepared.values()]
    with ExitStack() as stack:
        processes = processes or stack.enter_context(PreloadedProcesses())
        processes.expect([guest_of(launch) for launch in launches if not launch.others])
        completed = supervise(
            launches, reporter, write_down, jobs, processes, keep and keep_process, share_devices=share_devices
        )
    for name, run in prepared.items():
        if name not in finished:
            withdraw(run.folder)
    return BatchResult([finished[name] for name in prepared if name in finished], not completed)


def close_run(run: PreparedRun, end: ProcessEnd) -> FinishedRun:
    """Write the results of a run that has ended, rank by rank if it has several."""
    if not run.others:
        return close_rank(run, end)
    finished = [
        close_rank(rank_run, rank_end) for rank_run, rank_end in zip([run, *run.others], end.ranks, strict=True)
    ]
    manifest = run_manifest([RecordedRun(rank.folder.path, rank.manifest) for rank in finished], end)
    manifest.write(run.folder.manifest)
    return replace(finished[0], manifest=manifest)


def close_rank(run: PreparedRun, end: ProcessEnd) -> FinishedRun:
    """Write the pickle and the final manifest of a run, or of one of its ranks, from its journal.

    An experiment of an investigation has no pickle: its journal has the same values, and only numdrift reads it.
    """
    folder = run.folder
    removed = not folder.manifest.exists()
    if removed:
        folder.journal.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder.journal)
    notices = [event["text"] for event in journal.events("notice")]
    if run.manifest.experiment is None:
        try:
            write_pickle(folder.pickle, run.manifest.mode, journal)
        except (OSError, JournalError) as error:
            notices.append(f"{folder.pickle.name} could not be written: {error}")
    outcome = Ending("crashed", REMOVED) if removed else ending(journal, end, folder.stderr)
    spec = run.launch.spec
    # A process without an end in its journal crashed in native code, possibly in a swapped kernel.
    if end.returncode and journal.end is None:
        outcome = replace(outcome, message=outcome.message + inside_kernel(spec, folder.journal))
    problems = []
    if outcome.status == "complete" and journal.steps:
        modules_by_op = {event["op"]: event["modules"] for event in journal.events("swap-modules")}
        problems = never_executed(spec, folder.journal, modules_by_op)
    manifest = replace(
        run.manifest,
        status=outcome.status,
        message=outcome.message,
        steps=len(journal.steps),
        seconds=round(end.seconds, 3),
        exit_code=end.returncode,
        swaps=swaps_of_run(
            spec, folder.journal, [swap for event in journal.events("swaps") for swap in event["swaps"]]
        ),
        problems=problems,
        notices=[*notices, *([journal.damage] if journal.damage else [])],
        adopted={
            "modules": journal.events("adopted"),
            "loss": journal.events("loss"),
            "facts": journal.events(ADOPTION),
            "doubts": journal.events(DOUBT),
        },
        environment=next(iter(journal.events("environment")), {}),
        files=run_files(run.config, journal),
    )
    manifest = replace(manifest, notices=[*manifest.notices, *_export_graphs(RecordedRun(folder.path, manifest))])
    manifest.write(folder.manifest)
    return FinishedRun(folder, manifest, journal)


def _export_graphs(run: RecordedRun) -> list[str]:
    """Write the ONNX files of a run's graphs beside their records. Return a notice if that fails."""
    graphs = RunGraphs(run)
    try:
        if graphs.entries:  # the exporter needs onnx, which takes long to import
            exporting = importlib.import_module("numdrift.harness.graphs.export.onnx_model")
            exporting.export_graphs(graphs, graphs.path)
    except (OSError, NumdriftError, ImportError) as error:
        return [f"the graphs could not be exported for Netron: {error}"]
    return []

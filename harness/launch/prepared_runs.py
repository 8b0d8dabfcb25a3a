"""Creates the folders, manifests and configurations of a plan's runs, before their processes start."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from ..errors import UsageError
from ..records import frames
from ..records.modes.mode_spec import ModeSpec
from ..records.run.run_config import RunConfig
from ..records.run.run_files import OwnFolders
from ..records.run.run_request import RunRequest
from ..records.tools.graph_record import lazy_dump, xla_dump
from ..runs.manifest import RunManifest, holds_no_step
from ..runs.run_layout import RunFolder, rank_folder
from .batch_plan import BatchPlan, script_sha256
from .guest_process import OF_SAMPLES, Launch
from .own_folders import own_folders


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run whose folder exists and whose process is not started yet. `others` are its ranks other than rank 0."""

    folder: RunFolder
    manifest: RunManifest
    config: RunConfig
    launch: Launch
    others: tuple[PreparedRun, ...] = ()


def prepare_run(plan: BatchPlan, spec: ModeSpec, since: float) -> PreparedRun:
    """Create the folder of a run, with a manifest and a configuration for each rank.

    since: the time at which the investigation's first run began. Raises UsageError if the folder cannot be created.
    """
    folder = plan.investigation.run(spec.name, plan.suffix)
    try:
        folder.create(force=plan.force or holds_no_step(folder))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be created: {error.strerror}; choose another --out") from None
    files = own_folders(plan, spec, since)
    first_rank, *other_ranks = (prepare_rank(plan, spec, folder.rank(rank), rank, files) for rank in range(plan.nproc))
    launch = replace(first_rank.launch, others=[run.launch for run in other_ranks])
    return replace(first_rank, launch=launch, others=tuple(other_ranks))


def prepare_rank(plan: BatchPlan, spec: ModeSpec, folder: RunFolder, rank: int, files: OwnFolders) -> PreparedRun:
    """Write the manifest and the configuration of one rank. `folder` is the rank's, `files` are those of its run."""
    folder.journal.mkdir(parents=True, exist_ok=True)
    place = plan.place(spec)
    config = replace(run_config(plan, spec, folder, rank), files=files)
    folder.config.write_text(json.dumps(config.to_json(), indent=2) + "\n", encoding="utf-8")
    # The manifest is written before the process starts. The pid of this process distinguishes a current run from an
    # abandoned one.
    manifest = RunManifest(
        mode=spec.name,
        spec=str(spec),
        suffix=plan.suffix,
        reproducer=str(place.script),
        module=plan.module,
        script_sha256=script_sha256(place.script),
        arguments=list(spec.arguments(plan.arguments)),
        record=plan.record,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        position=[*(plan.positions or (mode.name for mode in plan.modes))].index(spec.name),
        pickle=folder.pickle.name,
        pid=os.getpid(),
        host=socket.gethostname() if plan.machines > 1 else "",
        experiment=plan.experiment,
        revision=place.revision,
        rank=rank,
        world_size=plan.nproc,
    )
    manifest.write(folder.manifest)
    launch = Launch(
        name=spec.name,
        spec=spec,
        config=folder.config,
        events=folder.journal / frames.EVENTS,
        stdout=folder.stdout,
        stderr=folder.stderr,
        timeout=spec.timeout if spec.timeout is not None else plan.timeout,
        reads_input=plan.pass_through,
        held=plan.serve is not None and not rank,
        inherited=plan.inherited,
        trains=plan.subject is None,
        imports=OF_SAMPLES if plan.subject is not None and plan.subject.op else (),
        variables=_graph_variables(spec, folder.path.absolute()) if plan.graphs else {},
    )
    return PreparedRun(folder, manifest, config, launch)


def _graph_variables(spec: ModeSpec, run: Path) -> dict[str, str]:
    """Return the variables that make a mode write the graphs that it executes; they must be set from the start."""
    dump = {"lazy": lazy_dump, "xla": xla_dump}.get(spec.base)
    return {} if dump is None else dump(run)


def run_config(plan: BatchPlan, spec: ModeSpec, folder: RunFolder, rank: int = 0) -> RunConfig:
    """Return the configuration of the process of one run of a plan, or of one of its ranks.

    Only rank 0 may become a worker and keep graphs.
    """
    request_fields = {field.name: getattr(plan, field.name) for field in fields(RunRequest)}

    def states(of_run: Path | None) -> str:
        if of_run is None:
            return ""
        # A rank uses the states of the same rank, or those of a reference that had one process.
        of_run = of_run.absolute()
        of_rank = rank_folder(of_run.parent, rank) / of_run.name
        return str(of_rank if of_rank.is_dir() else of_run)

    place = plan.place(spec)
    return RunConfig(
        **request_fields | {"graphs": plan.graphs and not rank},
        script=str(place.script.absolute()),
        folder=str(place.folder),
        import_paths=tuple(place.import_paths),
        beside="" if place.beside is None else str(place.beside),
        revision=place.revision,
        invoked=str(place.script),
        mode=spec,
        journal=str(folder.journal.absolute()),
        arguments=tuple(plan.arguments),
        kernels=tuple((op, str(path.absolute())) for op, path in plan.kernels),
        resync=states(plan.resync),
        rejoin=states(plan.rejoin),
        serve="" if plan.serve is None or rank else str(plan.serve.absolute()),
        earlier=tuple(str(rank_folder(run, rank).absolute()) for run in _earlier_runs(plan)),
        rank=rank,
        world_size=plan.nproc,
    )


def _earlier_runs(plan: BatchPlan) -> list[Path]:
    """Return the folders of the runs that an experiment may repeat: those of its two modes, and the mode's experiments.

    They may not exist.
    """
    if plan.experiment is None:
        return []
    evidence, experiment = plan.investigation.path, plan.experiment
    modes = [evidence.parent / run for run in (experiment.run, experiment.reference) if run]
    own = {plan.investigation.run(plan.modes[0].name, plan.suffix).path}
    return [*modes, *sorted({*evidence.glob(f"{experiment.run}-*/")} - own)]


def withdraw(folder: RunFolder) -> None:
    """Remove the empty folder of a run that was never started.

    If Ctrl-C comes while its process is being started, the logs exist already, and are empty.
    """
    for path in sorted(folder.path.glob("rank*")):
        withdraw(RunFolder(path, path / folder.pickle.name))
    folder.config.unlink(missing_ok=True)
    folder.manifest.unlink(missing_ok=True)
    for log in (folder.stdout, folder.stderr):
        with suppress(OSError):
            if not log.stat().st_size:
                log.unlink()
    # `rmdir` fails for a folder that is not empty: files that somebody else put there stay.
    with suppress(OSError):
        folder.journal.rmdir()
        folder.path.rmdir()

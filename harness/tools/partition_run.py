"""Partition a script's models or a module in a separate process, and read the results."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from ..drift.run_comparison import RunComparison, compare_runs
from ..errors import NumdriftError, UsageError
from ..launch.batch_plan import BatchPlan, reproducer_of
from ..launch.execute_batch import FinishedRun, execute_together
from ..launch.guest_process import environment, guest_command, interpreter
from ..launch.supervise import Reporter
from ..launch.training_request import TrainingRequest
from ..observers.partition.partition_journal import PARTITION, PartitionRecord, read_partition
from ..records.modes.mode_spec import ModeSpec
from ..records.run.user_option import option
from ..records.tools.partition_record import OF_PROCESS, PartitionConfig
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import InvestigationFolder, check_name, choose_investigation

FACTORY = re.compile(r"[^:]+:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The result of a partitioning.

    path: the folder of the result
    failure: how the process failed, if it could not report its failure itself
    where: the file with the process's output
    comparison: the comparison of a script's partitioned run with its unpartitioned run
    """

    target: str
    path: Path
    record: PartitionRecord
    failure: str
    where: str
    steps: int | None = None
    comparison: RunComparison | None = None

    def to_json(self) -> dict[str, object]:
        return self.record.to_json() | {
            "target": self.target,
            "path": str(self.path),
            "failure": self.record.failure or self.failure,
            "steps": self.steps,
            "comparison": None if self.comparison is None else self.comparison.to_json(),
        }


def is_factory(target: str) -> bool:
    """Check whether a target is FILE.py:FACTORY or package.module:FACTORY, and not a script."""
    return bool(FACTORY.fullmatch(target)) and not Path(target).exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRequest(TrainingRequest):
    """A request to partition a script's models, or the module of a factory, for the backend of one mode."""

    config: PartitionConfig
    inference: bool = option(False, "For a module: evaluate it without gradients.")
    bisect: bool = option(
        False, "For a module: find the operators that carry its drift, by moving parts of it to the CPU."
    )
    check: bool = option(False, "For a script: also run it unpartitioned, and report how far apart the two runs are.")


def partition_script(request: PartitionRequest, spec: ModeSpec, reporter: Reporter) -> Partitioned:
    """Run a script with its models partitioned for a mode. With `check`, also run it unpartitioned, on the CPU.

    Raises UsageError.
    """
    reproducer, words = reproducer_of(request.script, request.module, request.arguments)
    chosen = choose_investigation(request.out, reproducer.named_after, request.name, "")
    # The process itself runs in mode `cpu`: only the partitions use the backend of `spec`.
    own = ModeSpec(f"partitioned-{spec.name}", "cpu", **{key: getattr(spec, key) for key in OF_PROCESS})
    plan = BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        modes=[own],
        investigation=chosen,
        arguments=words,
        record="params" if request.check else "losses",
        timeout=request.timeout,
        instruments={"partition": {"mode": spec.to_json(), "config": request.config.to_json()}},
        **request.run,
    )
    # The unpartitioned run has the same threads, environment and interpreter, so that nothing else differs.
    plans = [plan, replace(plan, modes=[replace(own, name="cpu")], instruments={})] if request.check else [plan]
    plans = [replace(batch_plan, positions=(own.name, "cpu")) for batch_plan in plans]
    result = execute_together(plans, reporter, jobs=1)
    if result.interrupted:
        raise KeyboardInterrupt
    run = result.runs[0]
    comparison = None if len(result.runs) < 2 else _compared(result.runs[1], run)
    manifest = run.manifest
    return Partitioned(
        str(reproducer.path),
        chosen.path,
        read_partition(run.folder.path / PARTITION),
        f"the script {manifest.status}: {manifest.message}" if manifest.failed else "",
        f"its error output is in {run.folder.stderr}",
        manifest.steps,
        comparison,
    )


def _compared(reference: FinishedRun, run: FinishedRun) -> RunComparison | None:
    try:
        a, b = (RecordedRun(finished.folder.path, finished.manifest) for finished in (reference, run))
        return compare_runs(a, b)
    except NumdriftError:  # one of the runs has no step; its ending states the reason
        return None


def partition_module(request: PartitionRequest, target: str, spec: ModeSpec) -> Partitioned:
    """Partition the module that a factory creates, in a process of the mode.

    With `bisect`, find the parts of the module that carry its drift. Raises UsageError.
    """
    place, _, factory = target.rpartition(":")
    if request.name is None:
        named_after = Path(f"{Path(place.removesuffix('.py')).name}-{factory}")
        investigation = choose_investigation(request.out, named_after, None, "")
    else:
        investigation = InvestigationFolder(request.out / check_name("--name", request.name))
    folder = investigation.run(f"partitioned-{spec.name}", "").path
    try:
        folder.mkdir(parents=True, exist_ok=False)
    except FileExistsError:
        raise UsageError(f"{folder} exists already: choose another --name") from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror}; choose another --out") from None
    settings = {
        "target": target,
        "mode": spec.to_json(),
        "config": request.config.to_json(),
        "inference": request.inference,
        "bisect": request.bisect,
    }
    file = folder / "config.json"
    file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    failure = _run(file, spec, folder, request.timeout)
    record = read_partition(folder / PARTITION)
    return Partitioned(target, folder, record, failure, f"its error output is in {folder / 'stderr.log'}")


def _run(file: Path, spec: ModeSpec, folder: Path, timeout: float | None) -> str:
    """Run the process to its end. Return a description of its failure, "" on success."""
    command = guest_command(file.absolute(), python=interpreter(spec), module=PROCESS)
    limit = spec.timeout if spec.timeout is not None else timeout
    with (folder / "stdout.log").open("ab") as stdout, (folder / "stderr.log").open("ab") as stderr:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                env=environment(spec, os.environ), timeout=limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"the process took longer than {limit:g} s"
    if not done.returncode:
        return ""
    lines = (folder / "stderr.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"the process ended with exit code {done.returncode}: {lines[-1] if lines else 'it printed nothing'}"


PROCESS = "numdrift.harness.observers.partition.partition_process"

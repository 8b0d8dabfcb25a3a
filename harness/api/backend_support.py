"""`analyze`: the operators of a script that a mode's backend supports; and the partitioning of models for a backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ..errors import AdoptionError, UsageError
from ..launch.batch_plan import BatchPlan, reproducer_of
from ..launch.required_mode import require_mode
from ..launch.supervise import Reporter
from ..launch.xla_environment import in_their_interpreters
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import ModeSpec, parse_mode
from ..records.run.run_request import requested
from ..records.tools.partition_record import PartitionConfig, refuse_swaps
from ..tools.partition_run import Partitioned, is_factory, partition_module, partition_script
from ..tools.support.support_analysis import SupportAnalysis, analysis_plan, analyzed
from .api_running import passive_threads, told


def analyze(
    script: Path | str | None = None,
    mode: str = "lazy",
    arguments: Sequence[str] = (),
    *,
    module: str | None = None,
    dry: bool = False,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    verbosity: int = 2,
    output: Path | str | None = None,
    out: Path | str = "runs",
    timeout: float | None = None,
    progress: bool = False,
) -> SupportAnalysis:
    """Run a script in one mode and ask the mode's backend which of its operators it supports: `numdrift analyze`.

        found = numdrift.analyze("train.py", mode="compile", arguments=["--epochs", "2"])
        found.percentage, [one.call.kind for one in found.unsupported]
        numdrift.analyze("train.py", mode="lazy", dry=True, verbosity=1, output="result.json").operators()

    `mode` is one mode in full (`"compile,contract=fast"`); `module` runs a module, as `-m` does, in place of a script.
    `max_steps` and `max_seconds` end the training. With `dry` the script is captured and lowered but not executed. With
    `verbosity=1` the report also lists the backend's own instructions. `output` is the report's file, and a page is
    written beside it; without `output` neither is written. `out` is the folder of the run itself, `timeout` is in
    seconds (docs/guide/analyze.md).

    Prints nothing unless `progress` is set. For a script that fails, the result has the operators up to the failure
    (see `exit_code` and `ended_early`). Raises UsageError, also for an unknown mode or backend, NotAvailable for a
    feature that the mode or this machine lacks, AdoptionError if no operator reached the backend, and KeyboardInterrupt
    when Ctrl-C ended the run."""
    if verbosity not in (1, 2):
        raise UsageError(f"verbosity={verbosity} is none of 1 and 2")
    report = None if output is None else Path(output)
    with passive_threads():
        plan = planned_analysis(
            script, mode, arguments,
            module=module, dry=dry, max_steps=max_steps, max_seconds=max_seconds, output=report, out=Path(out),
            timeout=timeout,
        )  # fmt: skip
        analysis = analyzed(plan, told(progress), verbosity)
    if report is not None:
        analysis.write(report)
    return analysis


def planned_analysis(
    script: Path | str | None,
    mode: str,
    arguments: Sequence[str],
    *,
    module: str | None,
    dry: bool,
    max_steps: int | None,
    max_seconds: float | None,
    output: Path | None,
    out: Path,
    timeout: float | None,
) -> BatchPlan:
    """Plan the run of `numdrift.analyze` and `numdrift analyze`. Raises UsageError, also if the report could not be
    written."""
    spec = parse_mode(mode)
    # The report is written after a run that may take hours, so obstacles are found before the run.
    nearest_parent = (
        next((parent for parent in output.absolute().parents if parent.exists()), None) if output is not None else None
    )
    if output is not None and (output.is_dir() or (nearest_parent is not None and not nearest_parent.is_dir())):
        problem = f"{output} is a folder" if output.is_dir() else f"{nearest_parent} is no folder"
        raise UsageError(f"--output {output}: {problem}; name a file, as model_analysis_result/result.json")
    reproducer, words = reproducer_of(None if script is None else str(script), module, tuple(arguments))
    limits = requested({"max_steps": max_steps, "max_seconds": max_seconds})
    return analysis_plan(reproducer, words, spec, dry=dry, limits=limits, runs=out, timeout=timeout)


def partitioned(
    target: str | None,
    arguments: Sequence[str],
    spec: ModeSpec,
    config: PartitionConfig,
    reporter_for: Callable[[Sequence[str]], AbstractContextManager[Reporter]],
    say: Callable[[str], None],
    *,
    module: str | None,
    inference: bool,
    bisect: bool,
    check: bool,
    max_steps: int | None,
    max_seconds: float | None,
    out: Path,
    name: str | None,
    timeout: float | None,
) -> Partitioned:
    """Partition the module of a factory, or the models of a script.

    `reporter_for` returns the reporter of the runs with these names. Before anything is started, raises UsageError, and
    NotAvailable for a feature that the mode or this machine lacks.
    """
    refuse_swaps(spec)
    registry.entry(spec.base)
    (spec,) = in_their_interpreters([spec]).modes
    require_mode(spec)
    if module is None and target is not None and is_factory(target):
        if check or max_steps is not None or max_seconds is not None or arguments:
            raise UsageError(f"{target} is a module: --check, --max-steps, --max-seconds and arguments are of a script")
        place = target.rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            raise UsageError(f"there is no file {place}; give it as FILE.py:FACTORY")
        say(f"{spec.name}: partitioning {target}")
        return partition_module(target, spec, config, out, name, inference=inference, bisect=bisect, timeout=timeout)
    if inference:
        raise UsageError("--inference is of a module (FILE.py:FACTORY); a script evaluates where it does")
    if bisect:
        raise UsageError(
            "--bisect is of a module (FILE.py:FACTORY); of a script: `numdrift investigate --partition-bisect`"
        )
    limits = requested({"max_steps": max_steps, "max_seconds": max_seconds})
    # --check also runs the unpartitioned script on the CPU
    with reporter_for([f"partitioned-{spec.name}", *(["cpu"] if check else [])]) as reporter:
        return partition_script(
            target, module, arguments, spec, config, reporter,
            check=check, limits=limits, out=out, name=name, timeout=timeout,
        )  # fmt: skip


def require_parts(done: Partitioned) -> None:
    """Raise UsageError for an exceeded limit, and AdoptionError if nothing was partitioned."""
    record = done.record
    if record.violated:
        raise UsageError(record.violated)
    if record.failure and record.exit_code == UsageError.exit_code:
        raise UsageError(record.failure)
    if record.failure or done.failure:
        raise AdoptionError(f"{record.failure or done.failure}; {done.where}")
    if not record.graphs:
        why = "; ".join(record.notes) or "no model was called, or its forward could not be captured"
        raise AdoptionError(f"nothing was partitioned: {why}; {done.where}")

"""`numdrift.analyze`: finds which operators of a script a mode's backend supports. Also partitions models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ..errors import AdoptionError, UsageError
from ..launch.required_mode import require_mode
from ..launch.supervise import Reporter
from ..launch.xla_environment import in_their_interpreters
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import parse_mode
from ..records.tools.partition_record import refuse_swaps
from ..tools.partition_run import Partitioned, PartitionRequest, is_factory, partition_module, partition_script
from ..tools.support.support_analysis import AnalysisRequest, SupportAnalysis, analysis_plan, analyzed
from .api_running import listener, passive_threads


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
    """Run a script in one mode and find which of its operators the mode's backend supports, as `numdrift analyze` does.

        found = numdrift.analyze("train.py", mode="compile", arguments=["--epochs", "2"])
        found.percentage, [operator.call.kind for operator in found.unsupported]
        numdrift.analyze("train.py", mode="lazy", dry=True, verbosity=1, output="result.json").operators()

    `mode` is one mode with its settings (`"compile,contract=fast"`); `module` runs a module, as `-m` does, in place of
    a script. `max_steps` and `max_seconds` end the run. With `dry`, graphs are captured and lowered, but not executed
    on the backend. With `verbosity=1`, the report also lists the backend's own instructions. `output` is the file for
    the report, and a page is written next to it; without `output`, neither is written. The run is recorded within the
    folder `out`. `timeout` is in seconds. See docs/guide/analyze.md.

    Prints nothing unless `progress` is set. For a script that fails, the result has the operators up to the failure
    (see `exit_code` and `ended_early`). Raises UsageError, for example for an unknown mode or backend, NotAvailable
    for a feature that the mode or this machine lacks, AdoptionError if no operator reached the backend, and
    KeyboardInterrupt if Ctrl-C ends the run."""
    if verbosity not in (1, 2):
        raise UsageError(f"verbosity={verbosity} is neither 1 nor 2")
    request = AnalysisRequest.of(
        script,
        [parse_mode(mode)],
        arguments,
        {
            "module": module, "dry": dry, "max_steps": max_steps, "max_seconds": max_seconds, "out": out,
            "timeout": timeout,
        },
        output=None if output is None else Path(output),
    )  # fmt: skip
    with passive_threads():
        analysis = analyzed(analysis_plan(request), listener(progress), verbosity)
    if request.output is not None:
        analysis.write(request.output)
    return analysis


def partitioned(
    request: PartitionRequest,
    reporter_for: Callable[[Sequence[str]], AbstractContextManager[Reporter]],
    say: Callable[[str], None],
) -> Partitioned:
    """Partition the module that a factory returns, or the models of a script.

    `reporter_for` takes the names of runs and returns their reporter. Before anything is started, raises UsageError, or
    NotAvailable for a feature that the mode or this machine lacks.
    """
    (spec,) = request.modes
    refuse_swaps(spec)
    registry.entry(spec.base)
    (spec,) = in_their_interpreters([spec]).modes
    require_mode(spec)
    target = request.script
    if request.module is None and target is not None and is_factory(target):
        if request.check or request.run or request.arguments:
            raise UsageError(f"{target} is a module: --check, --max-steps, --max-seconds and arguments need a script")
        place = target.rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            raise UsageError(f"there is no file {place}; write the module as FILE.py:FACTORY")
        say(f"{spec.name}: partitioning {target}")
        return partition_module(request, target, spec)
    if request.inference:
        raise UsageError("--inference needs a module (FILE.py:FACTORY); a script decides for itself when to evaluate")
    if request.bisect:
        raise UsageError(
            "--bisect needs a module (FILE.py:FACTORY); for a script use `numdrift investigate --partition-bisect`"
        )
    # --check also runs the unpartitioned script on the CPU
    with reporter_for([f"partitioned-{spec.name}", *(["cpu"] if request.check else [])]) as reporter:
        return partition_script(request, spec, reporter)


def require_parts(done: Partitioned) -> None:
    """Raise UsageError for an exceeded limit or incorrect usage, AdoptionError for a failure or if no part exists."""
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

"""`numdrift.analyze`: which operators of a script a mode's backend supports, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageError
from ..launch.batch_plan import BatchPlan, asked_for
from ..records.mode_spec import parse_mode
from ..tools.support.support_analysis import SupportAnalysis, analysis_plan, analyzed
from .api_progress import passive_threads, told


def analyze(
    script: Path | str | None = None,
    mode: str = "lazy",
    arguments: Sequence[str] = (),
    *,
    module: str | None = None,
    dry: bool = False,
    steps: int | None = None,
    verbosity: int = 2,
    out: Path | str | None = None,
    runs: Path | str = "runs",
    timeout: float | None = None,
    progress: bool = False,
) -> SupportAnalysis:
    """Run a script in one mode, and ask the mode's backend of each operator that it is given: `numdrift analyze`.

        found = numdrift.analyze("train.py", mode="compile", arguments=["--epochs", "2"])
        found.percentage, [one.call.kind for one in found.unsupported]
        numdrift.analyze("train.py", mode="lazy", dry=True, verbosity=1, out="result.json").operators()

    `mode` is one mode in full (`"compile,contract=fast"`), `module` the name behind `-m` in place of a
    script. `dry` captures and lowers, and executes nothing. With `verbosity=1` what is written lists the
    backend's own instructions, too. `out` is the report's file, beside which a page is written; nothing is
    without it. `runs` is the folder that the run itself is recorded in, `timeout` in seconds
    (docs/guide/analyze.md).

    Prints nothing unless `progress`. A script that fails leaves what it was given until then (`exit_code`,
    `ended_early`). Raises UsageError, also for a mode or backend that there is not, NotAvailable for what the
    mode or this machine lacks, AdoptionError where the script gave the backend nothing, KeyboardInterrupt
    when Ctrl-C ended the run."""
    if verbosity not in (1, 2):
        raise UsageError(f"verbosity={verbosity} is none of 1 and 2")
    if steps is not None and steps < 1:
        raise UsageError(f"steps={steps} is no number of steps; at least 1 is run")
    report = None if out is None else Path(out)
    with passive_threads():
        plan = planned_analysis(
            script, mode, arguments,
            module=module, dry=dry, steps=steps, out=report, runs=Path(runs), timeout=timeout,
        )  # fmt: skip
        found = analyzed(plan, told(progress), verbosity)
    if report is not None:
        found.write(report)
    return found


def planned_analysis(
    script: Path | str | None,
    mode: str,
    arguments: Sequence[str],
    *,
    module: str | None,
    dry: bool,
    steps: int | None,
    out: Path | None,
    runs: Path,
    timeout: float | None,
) -> BatchPlan:
    """The run of `numdrift.analyze` and `numdrift analyze`. Raises UsageError, also where the report could
    not be written."""
    spec = parse_mode(mode)
    there = next((one for one in out.absolute().parents if one.exists()), None) if out is not None else None
    if out is not None and (out.is_dir() or (there is not None and not there.is_dir())):
        what = f"{out} is a folder" if out.is_dir() else f"{there} is no folder"
        raise UsageError(f"--out {out}: {what}; name a file, as model_analysis_result/result.json")
    reproducer, words = asked_for(None if script is None else str(script), module, tuple(arguments))
    return analysis_plan(reproducer, words, spec, dry=dry, steps=steps, runs=runs, timeout=timeout)

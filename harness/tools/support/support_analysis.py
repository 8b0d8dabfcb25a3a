"""The support analysis of a script as a run: its plan, its execution, and its report."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AdoptionError, UsageError
from ...launch.batch_plan import BatchPlan, reproducer_of
from ...launch.execute_batch import execute
from ...launch.required_mode import require_mode
from ...launch.supervise import Reporter
from ...launch.training_request import TrainingRequest
from ...launch.xla_environment import in_their_interpreters
from ...records.codec import json_text
from ...records.run.user_option import option
from ...records.tools.support_record import CountedCall, read_support
from ...runs.own_version import own_version
from ...runs.recorded_run import RecordedRun
from ...runs.run_layout import choose_investigation
from .support_report import InstructionRow, OperatorRow, SupportReport, report_json, report_of, write_page

if TYPE_CHECKING:
    import pandas as pd

DRY_STEPS = 2
"""The number of steps of a dry run; the second differs from the first if an optimizer creates its state in the
first."""


@dataclass(frozen=True, slots=True)
class SupportAnalysis:
    """Which of a script's operators a mode's backend supports, according to the backend itself.

    mode: the full text of the analyzed mode
    run: the run of the analysis
    unsupported: a row for each line that calls an unsupported configuration of an operator, with the reason
    exit_code: as on the command line: 0 if the analysis is done, even if an unsupported operator ended the script;
        3 if the script failed for another reason
    """

    mode: str
    script: Path
    run: RecordedRun = field(repr=False)
    report: SupportReport = field(repr=False)
    verbosity: int = 2

    @property
    def percentage(self) -> str:
        """The share of supported instructions among the backend's distinct instructions, as `60.00%`."""
        return self.report.percentage

    @property
    def supported(self) -> Sequence[OperatorRow]:
        return self.report.supported

    @property
    def unsupported(self) -> Sequence[CountedCall]:
        return self.report.unsupported

    @property
    def instructions(self) -> Sequence[InstructionRow]:
        """The backend's own instructions, and the operators that they come from."""
        return self.report.instructions

    @property
    def ended_early(self) -> str:
        """The cause that ended the script early, "" if none did."""
        manifest = self.run.manifest
        if not manifest.failed:
            return ""
        where = "an operator that the backend does not support" if self._is_finding() else "an error"
        return f"{where} ended the script ({manifest.message}); the report covers everything up to that point"

    @property
    def exit_code(self) -> int:
        manifest = self.run.manifest
        broken = any(text.startswith("support failed") for text in manifest.notices)
        failed = broken or (manifest.failed and not self._is_finding())
        return AdoptionError.exit_code if failed else 0

    def operators(self) -> pd.DataFrame:
        """Return a row for each supported operator, and for each line that calls an unsupported configuration."""
        pandas = importlib.import_module("pandas")
        columns = ("operator", "calls", "supported", "configuration", "failure_at", "call", "reason")
        without = [
            (
                counted.call.kind,
                counted.count,
                False,
                counted.call.configuration,
                counted.call.failure_at,
                counted.call.call,
                counted.call.reason,
            )
            for counted in self.unsupported
        ]  # fmt: skip
        rows = [
            (row.kind, row.count, True, "; ".join(row.configurations), "", ", ".join(row.calls), "")
            for row in self.supported
        ]
        frame: pd.DataFrame = pandas.DataFrame([*without, *rows], columns=columns)
        return frame

    def to_json(self) -> dict[str, object]:
        """Return the report of `numdrift analyze`, with the backend's instructions if `verbosity` is 1."""
        return report_json(self.report, self.mode, self._facts(), _version(), self.verbosity)

    def write(self, path: Path) -> list[Path]:
        """Write the report, and a page (.html) beside it; return the paths that existed before. Raises UsageError."""
        page = write_page(self.report, self.mode, self._facts(), _version())
        texts = {path: json_text(self.to_json()), path.with_suffix(".html"): page}
        replaced = [file for file in texts if file.exists()]
        for target, text in texts.items():
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            except OSError as error:
                raise UsageError(f"{target} cannot be written: {error.strerror}") from None
        return replaced

    def _is_finding(self) -> bool:
        """Check whether an unsupported operator ended the script."""
        reasons = [counted.call.reason for counted in self.unsupported]
        message = self.run.manifest.message
        # An operator that stays on the CPU ends a script elsewhere: where its result meets a device tensor.
        return any(reason in message or "stay on the CPU" in reason for reason in reasons)

    def _facts(self) -> Mapping[str, Any]:
        manifest = self.run.manifest
        return {
            "path": str(self.script),
            "arguments": list(manifest.arguments),
            "status": manifest.status,
            "message": manifest.message,
            "steps": manifest.steps,
            "run": str(self.run.path),
            "notices": list(manifest.notices),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisRequest(TrainingRequest):
    """A request for the training run of `numdrift analyze`, in the one mode whose backend is analysed."""

    dry: bool = option(
        False,
        "Capture and lower the graphs, but execute nothing on the backend: every value that the script reads is "
        f"zero. The run ends after {DRY_STEPS} steps by default.",
    )
    output: Path | None = None
    """The report's file; None writes no report."""


def analysis_plan(request: AnalysisRequest) -> BatchPlan:
    """Plan the run of an analysis.

    Raises UsageError, for example if the report could not be written, and NotAvailable for a feature that the mode
    lacks.
    """
    if request.output is not None:
        _check_output(request.output)
    reproducer, arguments = reproducer_of(request.script, request.module, request.arguments)
    resolved = in_their_interpreters(request.modes)
    plan = BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        modes=resolved.modes,
        interpreters=resolved.sentences,
        investigation=choose_investigation(request.out, Path(f"{reproducer.named_after.stem}-analysis"), None, ""),
        arguments=arguments,
        record="losses",
        timeout=request.timeout,
        instruments={"support": {"dry": request.dry}},
        **{**({"max_steps": DRY_STEPS} if request.dry else {}), **request.run},
    )
    # The mode and its backend are checked before the run, which may take minutes to fail.
    require_mode(plan.modes[0], str(plan.script), dry=request.dry)
    return plan


def _check_output(output: Path) -> None:
    """Refuse an unwritable path: the report is written after a run that may take hours. Raises UsageError."""
    nearest_parent = next((parent for parent in output.absolute().parents if parent.exists()), None)
    problem = ""
    if output.is_dir():
        problem = f"{output} is a folder"
    elif nearest_parent is not None and not nearest_parent.is_dir():
        problem = f"{nearest_parent} is not a folder"
    if problem:
        raise UsageError(f"--output {output}: {problem}; name a file, such as model_analysis_result/result.json")


def analyzed(plan: BatchPlan, reporter: Reporter, verbosity: int = 2) -> SupportAnalysis:
    """Run a script and ask its mode's backend about its operators.

    Raises AdoptionError if the backend received nothing, UsageError for a mode that was refused, and KeyboardInterrupt
    when Ctrl-C ended the run."""
    result = execute(plan, reporter)
    if result.interrupted:
        raise KeyboardInterrupt
    finished = result.runs[0]
    run = RecordedRun(finished.folder.path, finished.manifest)
    record = read_support(run.path)
    if record is not None and record.calls:
        # A script that failed has still called its operators up to the failure.
        return SupportAnalysis(str(plan.modes[0]), plan.script, run, report_of(record), verbosity)
    manifest = run.manifest
    why = "; ".join([manifest.message or f"the run is {manifest.status}", *manifest.notices])
    if result.exit_code == UsageError.exit_code:
        raise UsageError(why)
    what = f"its error output is in {finished.folder.stderr}"
    if manifest.failed:
        raise AdoptionError(f"nothing was analysed, because the script ended first ({manifest.status}): {why}; {what}")
    raise AdoptionError(
        f"nothing was analysed: the script called no operator in mode {manifest.mode} ({why}); name the script that "
        f"calls the model; {what}"
    )


def _version() -> str:
    return own_version()

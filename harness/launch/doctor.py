"""The doctor's examination: a small script is run in each mode, and each failure is reported with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import ModeSpec
from ..runs.run_layout import InvestigationFolder
from .batch_plan import BatchPlan
from .execute_batch import execute
from .supervise import Reporter
from .xla_environment import described, in_their_interpreters

TRIAL = Path(__file__).with_name("doctor_trial.py")
TIMEOUT_SECONDS = 180.0

REMEDIES = (
    ("compiler", "install a C++ compiler (Debian: apt-get install g++) or set CXX to one"),
    ("Python.h", "install Python's headers (Debian: apt-get install python3-dev)"),
    ("No module named 'torch'", "install torch in the interpreter that the mode uses"),
)
"""Words that occur in failures, each with the remedy for such a failure."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one mode.

    reason, remedy: empty if the mode works
    seconds: wall time
    """

    mode: str
    summary: str
    works: bool
    seconds: float
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings, and the environment of the first mode that ran."""

    findings: Sequence[Finding]
    environment: dict[str, Any]


def examine(folder: Path, bases: Sequence[str], reporter: Reporter) -> Examination:
    """Try each base in a separate process. The runs are written to `folder`, which the caller removes."""
    specs: list[ModeSpec] = []
    interpreters: dict[str, str] = {}
    refused: dict[str, Finding] = {}
    for base in bases:
        try:
            (spec,) = in_their_interpreters([ModeSpec(name=base, base=base)]).modes
            interpreters[base] = described(spec)
            specs.append(spec)
        except UsageError as error:
            reason, _, remedy = str(error).removeprefix(f"mode {base!r}: ").partition("; ")
            refused[base] = Finding(base, registry.entry(base).summary, False, 0.0, reason, remedy)
    plan = BatchPlan(
        script=TRIAL,
        modes=specs,
        investigation=InvestigationFolder(folder / "doctor"),
        timeout=TIMEOUT_SECONDS,
        jobs=2,
    )
    manifests = [run.manifest for run in execute(plan, reporter).runs]
    findings = dict(refused)
    for manifest in manifests:
        works = manifest.status == "complete" and manifest.steps == 2
        outcome = manifest.message or f"{manifest.steps} of 2 steps were recorded"
        # A NotAvailable message ends with its remedy in brackets, which is used if no word of REMEDIES matches.
        reason, _, remedy = outcome.partition(" (") if manifest.message.endswith(")") else (outcome, "", "")
        advice = next((cure for word, cure in REMEDIES if word in outcome), remedy.removesuffix(")"))
        finding = Finding(
            mode=manifest.mode,
            summary=registry.entry(manifest.mode).summary
            + (interpreters[manifest.mode] and f", in {interpreters[manifest.mode]}"),
            works=works,
            seconds=manifest.seconds,
            reason="" if works else reason,
            remedy="" if works else advice or "run the mode on its own with numdrift run to see its whole output",
        )
        findings[finding.mode] = finding
    environments = [dict(manifest.environment) for manifest in manifests if manifest.environment]
    return Examination([findings[base] for base in bases if base in findings], environments[0] if environments else {})

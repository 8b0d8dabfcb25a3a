"""The scripts of a check's causes and errors, shrunk to the smallest ones that still show them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..investigate.experiments.laboratory import Laboratory
from ..launch.batch_plan import BatchPlan
from ..records.codec import json_text
from ..records.results.call_check import RAISES, CheckedMode, ShrunkScript
from ..records.run.call_subject import TIMES, TRACED
from ..records.run.step_selection import KeepParams
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import JOURNAL, InvestigationFolder
from .compared_calls import facts_of

SCRIPTS = "numdrift.harness.localize.scripts"
TIMEOUT = 300.0
"""The seconds that shrinking one script may take."""

ERRORS = "errors"
"""The folder of the calls whose ops were traced, in the folder of a check."""


def with_shrunk(
    mode: CheckedMode, runs: Sequence[RecordedRun], batch: BatchPlan, laboratory: Laboratory
) -> CheckedMode:
    """Return the mode with a shrunk script for each proven cause that has a script, or for its first error.

    `runs` are those of the reference and of the mode.
    """
    if mode.verdict == RAISES:
        return replace(mode, shrunk=[_shrunk_error(runs, batch, laboratory)])
    culprits = () if mode.pair is None else mode.pair.culprits
    faults = [culprit for culprit in culprits if culprit.is_proven and culprit.significance == "beyond-rounding"]
    scripts = [
        Path(culprit.script.path)
        for culprit in faults
        if culprit.script is not None and culprit.script.reproduces and culprit.script.path
    ]
    made = [
        _executed("shrunk_script", [script, target], target)
        for script in scripts
        for target in [script.with_name(script.name.replace("culprit", "shrunk"))]
    ]
    if faults and not made:
        made = [ShrunkScript("", "no script shows this cause alone, so there is nothing to shrink")]
    return replace(mode, shrunk=made)


def _shrunk_error(runs: Sequence[RecordedRun], batch: BatchPlan, laboratory: Laboratory) -> ShrunkScript:
    """Shrink the first call that raises an error in one of two modes alone."""
    reference, run = runs
    expected, calls = facts_of(reference), facts_of(run)
    if run.manifest.status == "killed" and len(calls) < len(expected):  # the next call has killed its process
        calls.append(replace(expected[len(calls)], raised=f"killed {run.manifest.message}"))
    pairs = list(zip(expected, calls, strict=False))
    differ = (bool(a.raised) != bool(b.raised) or b.raised.startswith("killed by ") for a, b in pairs)
    first = next((place for place, differs in enumerate(differ) if differs), None)
    if first is None or batch.subject is None:
        return ShrunkScript("", "the mode did not get through its calls, so there is nothing to shrink")
    a, b = pairs[first]
    folder = batch.investigation.path / ERRORS / run.manifest.mode
    folder.mkdir(parents=True, exist_ok=True)
    plan = replace(
        batch,
        modes=[spec for spec in batch.modes if spec.name == reference.manifest.mode],
        subject=replace(batch.subject, only=first // TIMES, traced=True),
        investigation=InvestigationFolder(folder),
        keep_params=KeepParams(),
        force=True,
    )
    [again] = laboratory.free(plan)
    traced = again.path / JOURNAL / TRACED
    if not traced.exists():
        return ShrunkScript("", "the ops of the call cannot be traced, so there is nothing to shrink")
    labels = [of_run.manifest.label for of_run in runs]
    sentences = [
        f"Only {labels[1] if b.raised else labels[0]} raises an error ({a.label}).",
        "",
        b.raised or a.raised,
        "",
        "Exit code 1: only one of them raises an error; 0: both do, or neither.",
    ]
    if run.manifest.status == "killed":
        sentences = [f"{labels[1]} ends the process ({a.label}): {b.raised}.", "", f"{labels[0]} does not."]
    target = folder / "shrunk-error.py"
    request = folder / "request.json"
    content = {
        "traced": str(traced),
        "target": str(target),
        "spec": run.manifest.spec,
        "labels": labels,
        "errors": [a.raised, b.raised],
        "heading": [re.sub(r'["\\]', "'", sentence) for sentence in sentences],
    }
    request.write_text(json_text(content), encoding="utf-8")
    return _executed("shrunk_error", [request], target)


def _executed(program: str, arguments: Sequence[Path], target: Path) -> ShrunkScript:
    """Execute one of the programs that shrink a script, which writes `target`."""
    command = [sys.executable, "-m", f"{SCRIPTS}.{program}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return ShrunkScript("", f"shrinking {target.name} did not end within {TIMEOUT:.0f} s")
    lines = (done.stdout if done.returncode in (0, 2) else done.stderr).strip().splitlines()
    text = lines[-1] if lines else "its process failed"
    return ShrunkScript("" if done.returncode else str(target), text)

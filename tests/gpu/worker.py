"""One row run: its outcome, whatever happens."""

from __future__ import annotations

import time
import traceback
from dataclasses import replace

from .commands import Done
from .judged import judged, said
from .laboratory import Laboratory, Measured
from .measurements import FUNCTIONS
from .needs import lacking
from .outcome import Outcome
from .rows import Investigation, Measurement, Row

INVESTIGATION = "investigation.json"


def plain(row: Row) -> Outcome:
    """Return what is known of a row before it is run."""
    return Outcome(row.name, row.group, row.what, list(row.modes))


def outcome_of(lab: Laboratory, row: Row) -> tuple[Outcome, str]:
    """Run a row; return its outcome, and what its commands said."""
    begun = plain(row)
    try:
        if why := lacking(lab, row):
            return replace(begun, skipped=why), ""
        if not lab.commands.left:
            return replace(begun, wrong="was not run: the time was over"), ""
        return investigated(lab, row, begun) if isinstance(row, Investigation) else measured(lab, row, begun)
    except Exception as error:  # noqa: BLE001, a row that fails is a row, and the others go on
        return replace(begun, wrong=f"scripts/gpu fails: {type(error).__name__}: {error}"), traceback.format_exc()


def investigated(lab: Laboratory, row: Investigation, begun: Outcome) -> tuple[Outcome, str]:
    options = [*lab.modes(*row.modes), *row.options]
    done = lab.run(row.name, "investigate", row.script.path, *options, "--", *row.arguments, limit=row.limit)
    made = replace(
        begun,
        expected=" or ".join(row.verdicts),
        expected_cause=said(row.causes),
        seconds=round(done.seconds, 1),
        bare=[one.key for one in lab.device.bare(row)],
        within=list(row.within or ()),
    )
    if done.code not in (0, 1, 3) or not (lab.folder / row.name / INVESTIGATION).exists():
        return replace(made, found="none", wrong=done.why()), _said(done)
    findings = lab.read(row.name, INVESTIGATION)
    [pair] = findings["pairs"]
    found = judged(row, pair)
    details = {name: pair.get(name) for name in ("score", "explained", "runs_used", "first_significant_step")}
    return replace(made, found=found.verdict, cause=found.cause, wrong=found.wrong, details=details), _said(done)


def measured(lab: Laboratory, row: Measurement, begun: Outcome) -> tuple[Outcome, str]:
    before = time.monotonic()
    found: Measured = FUNCTIONS[row.function](lab, row.name, row.limit)
    seconds = round(time.monotonic() - before, 1)
    made = replace(begun, expected=row.expected, found=found.found, wrong=found.wrong, seconds=seconds)
    return replace(made, details=dict(found.details)), found.wrong


def _said(done: Done) -> str:
    return f"{done.out}\n{done.err}"

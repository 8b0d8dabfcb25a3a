"""Reads of memory that no op has written, as the noise files of a run's taped steps describe them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...drift.step_noise import read_noise
from ...errors import JournalError
from ...records.values.call_record import CallRecord
from ...records.values.unfilled_read import UnfilledRead
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import noise_steps


def reads_on_tapes(run: RecordedRun) -> list[UnfilledRead]:
    """Return the reads in all taped steps of a run, in order; a damaged file contributes none."""
    reads: list[UnfilledRead] = []
    for step in noise_steps(run.path):
        with suppress(JournalError, KeyError, TypeError):
            noise = read_noise(run.path, step)
            for read in (noise.unwritten or ()) if noise is not None else ():
                made_by = _call(step, read["made_by"])
                reads.append(UnfilledRead(made_by, made_by.op, _call(step, read["read_by"])))
    return reads


def _call(step: int, described: Mapping[str, Any]) -> CallRecord:
    module = described["module"]
    return CallRecord(
        step,
        str(described["op"]),
        str(described["line"]),
        str(described["phase"]),
        None if module is None else str(module),
    )

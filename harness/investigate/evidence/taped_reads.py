"""Reads of memory that no op has written, as the noise files of a run's taped steps describe them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...drift.step_noise import noises_of
from ...records.values.call_record import CallRecord
from ...records.values.unfilled_read import UnfilledRead
from ...runs.recorded_run import RecordedRun


def reads_on_tapes(run: RecordedRun) -> list[UnfilledRead]:
    """Return the reads in all taped steps of a run, in order; a damaged file contributes none."""
    reads: list[UnfilledRead] = []
    for noise in noises_of(run.path):
        for read in noise.unwritten or ():
            with suppress(KeyError, TypeError):
                made_by = _call(noise.step, read["made_by"])
                reads.append(UnfilledRead(made_by, made_by.op, _call(noise.step, read["read_by"])))
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

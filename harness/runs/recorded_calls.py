"""The calls that an experiment recorded, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..errors import JournalError
from ..records.values.call_record import CALLS, CallRecord
from .recorded_run import RecordedRun


def read_calls(run: RecordedRun) -> Iterator[tuple[int, list[CallRecord]]]:
    """Yield each recorded step with its calls, in the order of the calls. Only one step at a time is in memory.

    If the file was cut off, its complete lines are read. Raises JournalError if the file is damaged in any other way.
    """
    path = run.path / "journal" / CALLS

    def records() -> Iterator[CallRecord]:
        if not path.exists():
            return
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):  # if not, a kill of the process cut the line off
                    try:
                        yield CallRecord.from_line(line)
                    except ValueError as error:
                        raise JournalError(path, f"is damaged: {error}") from error

    for step, calls in itertools.groupby(records(), key=lambda call: call.step):
        yield step, list(calls)

"""The record of the support analysis in the script's process: `support.jsonl` in the run's folder, one object per line.

    {"event": "backend", "name": "inductor", "instruction_set": "inductor", "dry": false, "versions": {...}}
    {"event": "operator", "number": 3, "kind": "aten::mul", "configuration": "...", "call": "train.py:24", ...}
    {"event": "counts", "step": 1, "counts": {"3": 2}}
    {"event": "note", "text": "..."}
    {"event": "end"}

An `operator` line is written for each call that differs from all earlier calls. A `counts` line maps the number of each
`operator` line to the number of equal calls since the previous `counts` line. Written lines survive a kill of the
process; a record without an `end` line was cut off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import JournalError
from ..frames import append_event, complete_events
from .backend_work import OperatorCall

SUPPORT = "support.jsonl"
CUT_OFF = "the process ended before its record was complete, so operators may be missing"


class SupportWriter:
    """A writer that appends the facts that it receives to the record, until `end` or `forget` is called."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SUPPORT
        self._numbers: dict[OperatorCall, int] = {}
        self._new: Counter[int] = Counter()
        self._closed = False

    def begin(self, backend: str, instruction_set: str, versions: Mapping[str, str], *, dry: bool) -> None:
        self._write("backend", name=backend, instruction_set=instruction_set, dry=dry, versions=dict(versions))

    def called(self, call: OperatorCall) -> None:
        """Record one call of an operator."""
        number = self._numbers.get(call)
        if number is None:
            number = self._numbers[call] = len(self._numbers)
            self._write("operator", number=number, **asdict(call))
        self._new[number] += 1

    def count(self, step: int) -> None:
        """Write how often each operator has been called since the previous `count`."""
        if self._new:
            self._write("counts", step=step, counts=dict(self._new))
            self._new.clear()

    def note(self, text: str) -> None:
        self._write("note", text=text)

    def end(self) -> None:
        self._write("end")
        self._closed = True

    def forget(self) -> None:
        self._closed = True

    def _write(self, event: str, **fields: Any) -> None:
        if not self._closed:
            append_event(self._path, event, **fields)


@dataclass(frozen=True, slots=True)
class CountedCall:
    """A call of an operator, with the number of its executions (lazy and eager modes) or lowerings (compiled modes)."""

    call: OperatorCall
    count: int


@dataclass(frozen=True, slots=True)
class SupportRecord:
    """The record of one run. `whole` is false if the process ended before it wrote the `end` line."""

    backend: str
    instruction_set: str
    versions: Mapping[str, str]
    dry: bool
    calls: Sequence[CountedCall]
    notes: Sequence[str] = ()
    whole: bool = True


def read_support(folder: Path) -> SupportRecord | None:
    """Read the record in a run's folder; return None if there is none. Raises JournalError if it is damaged."""
    path = folder / SUPPORT
    if not path.exists():
        return None
    backend: Mapping[str, Any] = {}
    operators: dict[int, OperatorCall] = {}
    counts, notes, is_whole = Counter[int](), list[str](), False
    try:
        for event in complete_events(path):
            if event["event"] == "backend":
                backend = event
            elif event["event"] == "operator":
                fields = {name: event[name] for name in OperatorCall.__dataclass_fields__}
                # JSON has lists, but the fields must be tuples, since an OperatorCall is a key of dictionaries
                lists = {name: tuple(fields[name]) for name in ("instructions", "failing")}
                operators[event["number"]] = OperatorCall(**(fields | lists))
            elif event["event"] == "counts":
                counts.update({int(number): count for number, count in event["counts"].items()})
            elif event["event"] == "note":
                notes.append(event["text"])
            elif event["event"] == "end":
                is_whole = True
        if not backend:  # the adapter failed before it identified itself
            return None
        return SupportRecord(
            backend=backend["name"],
            instruction_set=backend["instruction_set"],
            versions=backend["versions"],
            dry=backend["dry"],
            # an operator that was recorded but not counted before the process ended was called once
            calls=[CountedCall(call, max(1, counts[at])) for at, call in operators.items()],
            notes=[*dict.fromkeys(notes), *([] if is_whole else [CUT_OFF])],
            whole=is_whole,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(path, f"is not a record of a support analysis ({error})") from error

"""What of a run is traced, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .codec import of_fields, read_fields
from .step_selection import StepSelection

Kind = Literal["trace", "operator"]

DEFAULT_STEPS = StepSelection(((3, 5),))
"""Compilers are done by then: TorchScript optimises a lazy graph when it runs for the third time."""

PROFILE = "profile"
WORKING = "working"
EVENTS = "events.jsonl"
MEBIBYTE = 2**20


def lines_of(trace: Path) -> Path:
    """The file beside the trace of a step that has the script's lines, by the External ids of ops."""
    return trace.with_suffix(".lines")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """`trace` has blocks, modules and the runtime, `operator` besides where each operator is called, with which shapes.

    The tracing ends with the step in which `duration` seconds are over, or the files have reached `limit` bytes.
    """

    kind: Kind = "trace"
    steps: StepSelection = field(default_factory=lambda: DEFAULT_STEPS)
    duration: float | None = None
    limit: int = 256 * MEBIBYTE

    @property
    def last(self) -> int | None:
        """The last step that is asked for; None where no step is the last."""
        ends = [last for _, last in self.steps.ranges]
        return None if not ends or None in ends else max(last for last in ends if last is not None)

    def to_json(self) -> dict[str, Any]:
        return of_fields(self)

    @classmethod
    def from_json(cls, data: Any) -> TraceRequest:
        """Raises Unreadable."""
        return read_fields(cls, data)

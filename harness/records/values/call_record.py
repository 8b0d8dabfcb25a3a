"""The records of a step's calls, with which two runs are compared call by call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

CALLS = "calls.jsonl"
"""The file of calls in a journal. Each line is a list of one call's fields; the lines are in the order in which the
calls ended."""

SETUP_PHASE = "setup"
"""The name of the phase before the script's first step begins."""

TORCH, OWN = "torch", "own"
"""The names of the generators that a call can draw from: torch's default generator, and one that the script created.

Any other generator has the name that journals use for it.
"""

GRAPH = "graph "
"""The beginning of `op` for a compiled graph. A graph is one call; its random ops are recorded as calls before it."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call of an op or, if `op` is "", a line of the script that changed the state of a generator.

    line: the innermost line of the user's own files, "" if it is unknown
    thread: the number of the thread: 0 for the script's own thread, from 1 on for the threads that the script starts
    tensors: the tensors among the arguments, each as the number of its memory (-1 if it is unknown) and the digest of
        its values ("" if they were not read)
    written: the positions in `tensors` of the tensors that the call writes
    numbers: the arguments that are not tensors
    results: the call's results in the form of `tensors`: those in new memory first, then the tensors that the call has
        written; a view of an argument has no digest
    drew: the generators that the call has advanced, each as (name, state before the call, state after it)
    """

    step: int
    op: str
    line: str
    phase: str
    module: str | None = None
    thread: int = 0
    tensors: Sequence[tuple[int, str]] = ()
    written: Sequence[int] = ()
    numbers: str = ""
    results: Sequence[tuple[int, str]] = ()
    drew: Sequence[tuple[str, str, str]] = ()

    def to_line(self) -> bytes:
        values = [getattr(self, name) for name in NAMES]
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: str) -> CallRecord:
        """Read a call. Raises ValueError for a line that is not a call."""
        values: Any = json.loads(line)
        if not isinstance(values, list) or len(values) != len(NAMES):
            raise ValueError(f"{line[:80]!r} is not a call")
        by_name = dict(zip(NAMES, values, strict=True))
        for name in ("tensors", "results", "drew"):
            by_name[name] = tuple(map(tuple, by_name[name]))
        return cls(**by_name | {"written": tuple(by_name["written"])})

    @property
    def name(self) -> str:
        """The op's name in culprits: `aten.mul.Tensor` is `aten.mul`."""
        parts = self.op.split(".")
        return ".".join(parts[:2]) if len(parts) > 2 else self.op


NAMES = tuple(field.name for field in fields(CallRecord))

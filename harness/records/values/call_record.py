"""The records of a step's calls, by which two trainings are compared call by call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

CALLS = "calls.jsonl"
"""The file of calls in a journal: one line per call, a list of its fields, in the order in which the calls ended."""

SETUP_PHASE = "setup"
"""The phase of the script before its first step begins."""

TORCH, OWN = "torch", "own"
"""The generators that a call draws from: torch's default one, and one that the script has created.

Other generators have the names that journals use for them.
"""

GRAPH = "graph "
"""The beginning of a compiled graph's `op`. A graph is one call; its random ops are separate calls before it."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call of an op or, if `op` is "", a line of the script that changed the state of a generator.

    line: the innermost line of the user's own files, "" if it is unknown
    thread: the number of the thread, counted from 1 for the threads that the script starts
    tensors: the tensors among its arguments, each as the number of its memory (-1: unknown) and the digest of its
        values ("": not read)
    written: the positions in `tensors` of the tensors that the call writes
    numbers: the other arguments
    results: its results, new memory first, then the tensors that it has written; a view of an argument has no digest
    drew: the generators that it has advanced, with their states before and after
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

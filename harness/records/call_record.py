"""The record of a step's calls, with which two trainings are compared call by call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

CALLS = "calls.jsonl"
"""The file of calls in a journal: a list of the fields a line, in the order in which the calls ended."""

SETUP_PHASE = "setup"
"""The phase of the script before its first step begins."""

TORCH, OWN = "torch", "own"
"""The generators that a call draws from: torch's own, and one that the script has made.

Others have the names that journals give them.
"""

GRAPH = "graph "
"""The beginning of a compiled graph's `op`: all of it is one call; its random ops are further calls before it."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call of an op or, if `op` is "", a line of the script after which a generator had another state.

    `line` is the innermost line of the user's own files ("" if it is not known), `thread` numbers the threads that the
    script starts from 1 on. `given` are its tensors, each as the number of its memory (-1: unknown) and the digest of
    its values ("": not read), of which the call writes those at `written`; `numbers` are the other arguments. `results`
    are its results, new memory first, then the tensors that it has written; a view of an argument has no digest. `drew`
    are the generators that it has advanced, with their states before and after.
    """

    step: int
    op: str
    line: str
    phase: str
    module: str | None = None
    thread: int = 0
    given: Sequence[tuple[int, str]] = ()
    written: Sequence[int] = ()
    numbers: str = ""
    results: Sequence[tuple[int, str]] = ()
    drew: Sequence[tuple[str, str, str]] = ()

    def to_line(self) -> bytes:
        values = [getattr(self, name) for name in NAMES]
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: str) -> CallRecord:
        """Read a call. Raises ValueError for a line that is none."""
        values: Any = json.loads(line)
        if not isinstance(values, list) or len(values) != len(NAMES):
            raise ValueError(f"{line[:80]!r} is no call")
        by_name = dict(zip(NAMES, values, strict=True))
        for name in ("given", "results", "drew"):
            by_name[name] = tuple(map(tuple, by_name[name]))
        return cls(**by_name | {"written": tuple(by_name["written"])})

    @property
    def name(self) -> str:
        """The op's name in culprits: `aten.mul.Tensor` is `aten.mul`."""
        parts = self.op.split(".")
        return ".".join(parts[:2]) if len(parts) > 2 else self.op


NAMES = tuple(field.name for field in fields(CallRecord))

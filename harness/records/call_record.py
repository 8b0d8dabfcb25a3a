"""What is recorded of the calls of a step so that two trainings can be held against each other call by call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

CALLS = "calls.jsonl"
"""The file of them in a journal: a list of the fields a line, in the order in which the calls ended."""

SETUP_PHASE = "setup"
"""The phase of what the script does before its first step begins."""

TORCH, OWN = "torch", "own"
"""torch's own generator among those that a call draws from (others have the names that journals give them), and one
that the script has made."""

GRAPH = "graph "
"""How the `op` of a compiled graph begins: all of it is one call, and its random ops are further ones before it."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of an op or, where `op` is "", a line of the script after which a generator was at another state.

    `line` is the innermost line of the user's own files ("" where nobody knows), `thread` numbers the threads that the
    script starts from 1 on. `given` are its tensors, each as the number of its memory (-1: unknown) and the digest of
    its values ("": not read), of which the call writes those at `written`; `numbers` are the other arguments. `results`
    are what it has given, new memory first, then what it has written; a view of what it was given has no digest. `drew`
    are the generators that it has moved, with their states before and after.
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
        """Raises ValueError for a line that is none."""
        values: Any = json.loads(line)
        if not isinstance(values, list) or len(values) != len(NAMES):
            raise ValueError(f"{line[:80]!r} is no call")
        found = dict(zip(NAMES, values, strict=True))
        for name in ("given", "results", "drew"):
            found[name] = tuple(map(tuple, found[name]))
        return cls(**found | {"written": tuple(found["written"])})

    @property
    def name(self) -> str:
        """The op as culprits have it: `aten.mul.Tensor` is `aten.mul`."""
        parts = self.op.split(".")
        return ".".join(parts[:2]) if len(parts) > 2 else self.op


NAMES = tuple(one.name for one in fields(CallRecord))

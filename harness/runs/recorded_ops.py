"""The ops that a run with the record level `ops` has recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..records import frames
from ..records.values.digest_record import unpack
from .journal import MALFORMED


@dataclass(frozen=True, slots=True)
class NonfiniteOp:
    """The first op whose result has a NaN. `index` counts the ops of the step."""

    step: int
    index: int
    phase: str
    op: str

    @property
    def text(self) -> str:
        return f"{self.op} in the {self.phase} of step {self.step} (op {self.index})"


def first_nan(journal: Path) -> NonfiniteOp | None:
    """Return the first recorded op whose result has a NaN, None if there is none. Damaged lines are left out.

    Infinities do not count: a mask has them by intention.
    """
    path = journal / frames.OPS
    if not path.exists():
        return None
    with path.open("rb") as file:
        for line in file:
            try:
                call = json.loads(line)
                if any(unpack(bytes.fromhex(record)).nan for record in call.get("digests", ())):
                    return NonfiniteOp(int(call["step"]), int(call["index"]), str(call["phase"]), str(call["op"]))
            except (*MALFORMED, AttributeError):
                continue
    return None

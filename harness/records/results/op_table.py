"""The result of `numdrift check --ops`: a row for each op of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..codec import schema_first
from .findings import NEEDS_A_PERSON, RUN_FAILED, WITHIN

SCHEMA = 1
OPS = "ops.json"
FAILED, UNDECIDED = "failed", "undecided"


def exit_code_of(codes: Iterable[int]) -> int:
    """Return the exit code of a table from those of its rows: 1 if a row needs a person, else the largest."""
    of_rows = {*codes}
    return NEEDS_A_PERSON if NEEDS_A_PERSON in of_rows else max(of_rows, default=0)


@dataclass(frozen=True, slots=True)
class CheckedOp:
    """An op in a mode.

    verdict: as in `CheckedMode`, or FAILED if the op could not be called
    text: the answer in one sentence, or the reason of a failure
    z: the largest drift in multiples of rounding
    cause: the first proven cause
    folder: the folder of the op's check
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    op: str
    mode: str
    verdict: str | None
    text: str = ""
    z: float | None = None
    cause: str = ""
    seconds: float = 0.0
    folder: str = ""

    @property
    def exit_code(self) -> int:
        if self.verdict == FAILED:
            return RUN_FAILED
        return 0 if self.verdict in WITHIN else NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class OpTable:
    """The ops that a regular expression matches, in some modes. `reused` ops were checked before, and not again."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    pattern: str
    reference: str
    rows: Sequence[CheckedOp]
    reused: int = 0
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if a mode of an op needs a person, else 3 if an op failed."""
        return exit_code_of(row.exit_code for row in self.rows)

    @property
    def answer(self) -> str:
        """The counts in one sentence, the worst first."""
        counts = Counter(row.verdict or UNDECIDED for row in self.rows)
        order = sorted(counts, key=lambda verdict: (verdict in WITHIN, -counts[verdict]))
        ops = len({row.op for row in self.rows})
        return f"{ops} ops: {', '.join(f'{counts[verdict]} {verdict}' for verdict in order)}"

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON."""
        return schema_first(self)

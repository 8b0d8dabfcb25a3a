"""The result of trying changes that should not matter: which of them a training is sensitive to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codec import schema_first
from .findings import WITHIN

SCHEMA = 1
NEUTRAL = "neutral.json"

NOTHING = "nothing to change"
"""The outcome of a change that does not apply to the training."""


@dataclass(frozen=True, slots=True)
class TriedChange:
    """A change of how a training is executed, and what it did.

    name: the name of the change and of its mode
    mode: the full text of the mode that makes it
    title: the change in words
    outcome: the verdict's word, None for an undecided pair, or `nothing to change`
    score, threshold: multiples of the reference's rounding noise, None if no step was scored
    text: the verdict or the reason in words
    """

    name: str
    mode: str
    title: str
    outcome: str | None
    score: float | None
    threshold: float | None
    text: str

    @property
    def matters(self) -> bool:
        """True if the training does not compute the same thing with this change, or if that is not decided."""
        return self.outcome not in (*WITHIN, NOTHING)


@dataclass(frozen=True, slots=True)
class NeutralMatrix:
    """The changes that were tried on a training.

    mode: the mode of the reference
    answer: what was found, in words
    """

    reproducer: str
    mode: str
    changes: Sequence[TriedChange]
    answer: str
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        return 1 if any(change.matters for change in self.changes) else 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of `neutral.json`."""
        return schema_first(self)

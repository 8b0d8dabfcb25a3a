"""The result of resuming a training: what the second start did not restore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codec import schema_first

SCHEMA = 1
RESUMPTION = "resumption.json"

KINDS = ("parameters", "buffers", "optimizer", "hyper-parameters", "script", "generators", "data", "steps")
"""What a resumed training can fail to restore, in the order in which it is reported."""


@dataclass(frozen=True, slots=True)
class NotRestored:
    """Something with another value in the resumed training than in the uninterrupted one at the same step.

    kind: one of KINDS
    names: tensors, hyper-parameters or generators
    text: what differs, in words
    """

    kind: str
    names: Sequence[str]
    text: str


@dataclass(frozen=True, slots=True)
class Resumption:
    """A training that was ended and started again, compared with the uninterrupted one.

    at: the last step after which the first start could write its files
    resumed_at: the step of the uninterrupted training that the second start begins with; 0 if it begins anew
    is_certain: whether the parameters show this step; otherwise it is the step after `at`
    first_differing_step: the first step of the uninterrupted training that the resumed one computes differently
    compared: the number of steps that both have
    answer: what was found, in words
    """

    reproducer: str
    mode: str
    at: int
    resumed_at: int
    is_certain: bool
    not_restored: Sequence[NotRestored]
    first_differing_step: int | None
    compared: int
    answer: str
    schema: int = SCHEMA

    @property
    def begins_anew(self) -> bool:
        """True if the second start begins with the parameters before step 0."""
        return self.is_certain and self.resumed_at == 0

    @property
    def exit_code(self) -> int:
        return 1 if self.begins_anew or self.first_differing_step is not None else 0

    def to_json(self) -> dict[str, Any]:
        """Return the content of `resumption.json`."""
        return schema_first(self)

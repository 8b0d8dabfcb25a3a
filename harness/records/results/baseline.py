"""The records of a gate: what a baseline was made from, and what a check against it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..codec import schema_first
from .findings import WITHIN

SCHEMA = 1
BASELINE = "baseline.json"


@dataclass(frozen=True, slots=True)
class Baseline:
    """The content of `baseline.json`, in the archive of a baseline.

    script: the script or module, as it was stated
    is_module: whether `script` is a module
    mode: the full text of the mode
    revision: the commit of the script's repository; empty if there is none, or if it had uncommitted changes
    steps: the steps that can be compared
    max_steps: the steps after which the training is ended, None for the whole training
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    script: str
    is_module: bool
    arguments: Sequence[str]
    mode: str
    revision: str
    steps: Sequence[int]
    max_steps: int | None = None
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Return the content of `baseline.json`."""
        return schema_first(self)


@dataclass(frozen=True, slots=True)
class BaselineCheck:
    """The result of comparing a training with its baseline.

    name: the script and the mode
    verdict: the verdict's word, None for an undecided pair
    text: the verdict in words
    causes: what the training does differently, in words; empty if no cause was looked for or found
    places: the lines of the causes, as FILE:LINE
    seconds: how long the check took
    folder: the investigation
    """

    name: str
    baseline: str
    verdict: str | None
    text: str
    causes: Sequence[str]
    places: Sequence[str]
    seconds: float
    folder: str
    schema: int = SCHEMA

    @property
    def passes(self) -> bool:
        return self.verdict in WITHIN

    @property
    def exit_code(self) -> int:
        return 0 if self.passes else 3 if self.verdict == "failed" else 1

    @property
    def message(self) -> str:
        """The result in words: the verdict, then the causes."""
        return "\n".join((f"{self.name}: {self.text}", *self.causes))

    def to_json(self) -> dict[str, Any]:
        """Return the check as JSON."""
        return schema_first(self)

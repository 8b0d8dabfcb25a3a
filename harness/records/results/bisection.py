"""The result of a bisection: which version of a training is the first to differ from an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codec import schema_first

SCHEMA = 1
BISECTION = "bisection.json"

GOOD, BAD, SKIPPED = "good", "bad", "skipped"


@dataclass(frozen=True, slots=True)
class TestedVersion:
    """A version that was trained and compared with the good end of the range.

    name: the commit's full name
    title: the commit's subject
    outcome: good, bad, or skipped if the version has no verdict
    verdict: the verdict's word, None if there is none
    text: the verdict in words, or the reason why there is none
    """

    __test__ = False  # pytest would take it for a test

    name: str
    title: str
    outcome: str
    verdict: str | None
    text: str


@dataclass(frozen=True, slots=True)
class VersionBisection:
    """The result of a bisection.

    mode: the mode in which the versions were trained
    bits: whether a version counts as bad if any bit differs, even by rounding only
    good, bad: the ends of the range that the user named, the good one first
    tested: the versions in the order in which they were tested
    last_good, first_bad: None if the two ends do not differ
    between: the versions between these two, which could not be tested
    answer: what was found, in words
    """

    reproducer: str
    mode: str
    bits: bool
    good: str
    bad: str
    tested: Sequence[TestedVersion]
    last_good: TestedVersion | None
    first_bad: TestedVersion | None
    between: Sequence[TestedVersion]
    answer: str
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        return 0 if self.first_bad is None else 1

    def to_json(self) -> dict[str, Any]:
        """Return the content of `bisection.json`."""
        return schema_first(self)

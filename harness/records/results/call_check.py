"""The result of `numdrift check`: for each mode, whether its calls compute what those of the reference compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..codec import schema_first
from .findings import NEEDS_A_PERSON, RUN_FAILED, WITHIN, PairFindings

SCHEMA = 1
RAISES, RESULTS = "raises", "other-results"
"""The verdicts of a mode that raises an error where the reference does not (or the reverse), and of one whose results
have another shape or dtype, share memory with other tensors, or whose calls write to other inputs."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """A result of the calls in a mode, where it differs from the reference.

    call: the call in which it is farthest from the reference
    difference: the L2 distance, divided by the L2 norm of the reference's result
    rounding: how far rounding alone moves the result, in the same unit
    magnified: `rounding` in multiples of the dtype's epsilon: how ill-conditioned the function is here
    z: the drift in multiples of rounding
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    name: str
    call: str = ""
    dtype: str = ""
    difference: float = 0.0
    rounding: float = 0.0
    magnified: float | None = None
    z: float = 0.0


@dataclass(frozen=True, slots=True)
class ShrunkScript:
    """A script of plain PyTorch that shows a cause with small inputs, without other files.

    path: the script, "" if there is none
    text: what was shrunk, or the reason why there is no script
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckedMode:
    """A mode compared with the reference.

    verdict: a word of the glossary, RAISES or RESULTS; None if undecided
    answer: the answer in one sentence
    text: further sentences
    differences: how the calls differ beside their values
    results: the results whose values differ, the farthest first
    closer_to_fp64: the side that is nearer to the calls in double, `equal`, or None
    shrunk: the scripts with the smallest inputs that show a cause, if they were asked for
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    mode: str
    verdict: str | None
    answer: str
    text: Sequence[str] = ()
    differences: Sequence[str] = ()
    results: Sequence[CallResult] = ()
    closer_to_fp64: str | None = None
    pair: PairFindings | None = None
    shrunk: Sequence[ShrunkScript] = ()

    @property
    def is_equal(self) -> bool:
        return self.verdict in WITHIN

    @property
    def exit_code(self) -> int:
        return 0 if self.is_equal else RUN_FAILED if self.verdict == "failed" else NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class CallCheck:
    """The calls of a target, in some modes.

    target: the file, and the name of the function if one was named
    calls: the calls in words
    stepped: the calls that raised no error in the reference; the steps of the runs
    environment: the versions and the processor
    notes: what a reader should know about the calls
    folder: the investigation's folder
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    target: str
    reference: str
    calls: Sequence[str]
    stepped: Sequence[str]
    modes: Sequence[CheckedMode]
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    seconds: float = 0.0
    folder: str = ""
    schema: int = SCHEMA

    @property
    def is_equal(self) -> bool:
        """True if all modes compute what the reference computes, except for rounding."""
        return all(mode.is_equal for mode in self.modes)

    @property
    def exit_code(self) -> int:
        return max((mode.exit_code for mode in self.modes), default=0)

    @property
    def message(self) -> str:
        """The answer in words, a line for each mode."""
        lines = [f"{self.target}: {mode.answer}" for mode in self.modes]
        return "\n".join([*lines, *(f"  {text}" for mode in self.modes for text in (*mode.differences, *mode.text))])

    def to_json(self) -> dict[str, Any]:
        """Return the check as JSON."""
        return schema_first(self)

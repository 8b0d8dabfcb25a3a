"""The details of one culprit beyond its record, in a JSON file beside its standalone script.

They are the code that each side executes, and the errors of each side's results, compared with double. The inputs are
those that the block had in the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..codec import FileForm

SUFFIX = ".json"
"""The suffix of the file, which has the same stem as the script."""

CALLS = "calls"
COMPILED = "compiled"
RECORDED = "recorded"
NOTHING = "nothing"
"""The forms that a side has in the script: plain calls, code compiled by Inductor, recorded results, or nothing."""


@dataclass(frozen=True, slots=True)
class ExecutedSide:
    """The code of a side.

    how: the side's form in the script
    parameters, lines: the parameters and lines of the script's function or, if the script has recorded results, of the
        code that computed them
    formula: a short form of the code as lines, of which the last is the result; () if there is none
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    how: str
    parameters: Sequence[str] = ()
    lines: Sequence[str] = ()
    formula: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ErrorsOverInputs:
    """The signed errors of chosen elements of one `result`, in ULP of the true result.

    exact: the true results of the chosen elements, computed in double on the same inputs
    errors: by side, the errors of the chosen elements, in the same order
    dtypes: by side, the dtype of the result
    elements: the number of elements of the result
    largest: by side, the largest error of all elements of the result
    not_finite: by side, the number of elements of the result whose error is not finite
    inputs: by argument, the values of the elements from which the chosen elements come, beginning with the argument
        over which the errors vary most; empty unless each element of the result comes from one element of an argument
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    result: str
    dtypes: Mapping[str, str]
    elements: int
    not_finite: Mapping[str, int]
    largest: Mapping[str, float]
    inputs: Mapping[str, Sequence[float]]
    exact: Sequence[float]
    errors: Mapping[str, Sequence[float]]

    @property
    def shown(self) -> int:
        return len(self.exact)


@dataclass(frozen=True, slots=True)
class CulpritDetail:
    """The code of each side and, if both sides execute one op on the same values, their errors."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    sides: Mapping[str, ExecutedSide] = field(default_factory=dict)
    errors: ErrorsOverInputs | None = None


DETAIL = FileForm(CulpritDetail)

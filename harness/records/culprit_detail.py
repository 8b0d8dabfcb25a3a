"""The details of one culprit besides its record, in a JSON file beside its standalone script.

They are the code that both sides execute, and the errors of each side's results against double, over the real inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .codec import FileForm

SUFFIX = ".json"
"""The suffix of the file, which has the name of the script."""

CALLS = "calls"
COMPILED = "compiled"
RECORDED = "recorded"
NOTHING = "nothing"
"""The form of a side in the script: plain calls, code compiled by Inductor, its results in the run, or nothing."""


@dataclass(frozen=True, slots=True)
class ExecutedSide:
    """The code of a side: `parameters` and `lines` of the script's function, or of the code behind recorded results.

    `formula` is a short form in lines, the last of which is the result; () if there is none.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    how: str
    parameters: Sequence[str] = ()
    lines: Sequence[str] = ()
    formula: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ErrorsOverInputs:
    """The signed errors of chosen elements of one `result`, in ULP of the true result.

    The true result, `exact`, is double arithmetic on the same inputs. By side there are `dtypes`, `errors` in the order
    of the elements, the `largest` of all `elements`, and the number of elements whose error is `not_finite`. `inputs`
    are the values of the arguments that belong to them, first those over which the errors vary most; none if a result
    belongs to no single element of an argument.
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

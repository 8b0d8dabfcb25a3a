"""What is known of one culprit besides its record, in a JSON file beside its standalone script: what both sides execute
there, and how far each side's results are from those in double, over the real inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .codec import FileForm

SUFFIX = ".json"
"""Of the file, which has the name of the script."""

CALLS = "calls"
COMPILED = "compiled"
RECORDED = "recorded"
NOTHING = "nothing"
"""How the script has a side: as plain calls, as Inductor compiles them, by what it gave in its run, or not at all."""


@dataclass(frozen=True, slots=True)
class ExecutedSide:
    """What a side executes: `parameters` and `lines` of the script's function, or of what is behind recorded results.
    `formula` says the same shortly, in lines, the last of which is the result; () where it would not."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    how: str
    parameters: Sequence[str] = ()
    lines: Sequence[str] = ()
    formula: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ErrorsOverInputs:
    """The signed errors of chosen elements of one `result`, in ULP of the true result: double arithmetic on the very
    inputs, which is `exact`. By side `dtypes`, `errors` in the order of the elements, the `largest` of all `elements`,
    and of how many of these the error is `not_finite`. `inputs` are the values of the arguments that belong to them,
    first those over which the errors vary most; none where a result belongs to no single element of an argument."""

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
    """By side what is executed, and where both sides execute one op on the same values, their errors."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    sides: Mapping[str, ExecutedSide] = field(default_factory=dict)
    errors: ErrorsOverInputs | None = None


DETAIL = FileForm(CulpritDetail)

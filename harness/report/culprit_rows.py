"""The rows of a culprit's card that come from the file beside its script: the ops of both sides, and their errors over
the inputs.

The file may come from a stranger. If its content is not as expected, a single line says so in place of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numdrift.kernels.registry import built_in

from ..errors import JournalError, KernelNotFound
from ..records.results.culprit import Culprit
from ..records.results.culprit_detail import (
    CALLS,
    COMPILED,
    DETAIL,
    NOTHING,
    RECORDED,
    ErrorsOverInputs,
    ExecutedSide,
)
from .run_kernels import RunKernels

LARGEST_FILE = 2_000_000
"""The largest size in bytes of a file that is read. The files that numdrift writes are at most a tenth of this size."""

LONGEST_CODE = 20_000
"""The largest number of characters of code that are shown."""

MOST_SHOWN = 5_000
MOST_INPUTS = 8

HOW: Mapping[str, str] = {
    CALLS: "",
    COMPILED: "as Inductor compiles it",
    RECORDED: "by its own kernel",
    NOTHING: "executes no op here",
}
KERNELS: Mapping[str, str] = {
    "aten": "torch's own kernel",
    "decomposed": "decomposed by the compiler",
    "inductor": "a kernel that Inductor generates",
}
"""The words for a side. KERNELS maps the name of the side's kernel to the words. If the kernel is unknown, HOW maps the
form of the side in the script to them."""

Numbers = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class SideRow:
    """One side of a culprit.

    name: the side's mode
    how: how the side executes the op, in words
    formula: the formula of the side's kernel
    code: the side's calls, as a Python function
    label: the label of the plot of the side's errors, "" if there is no plot
    generated, source: the name and the source of the kernel, if a compiler generated it and the run kept it
    """

    name: str
    how: str
    formula: str = ""
    code: str = ""
    label: str = ""
    generated: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ErrorPlot:
    """The errors of each mode over each of the `axes`, in ULP of the dtype `unit`.

    Numbers that are not finite are replaced by None. `caption` states how many of the elements are shown.
    """

    caption: str
    unit: str
    axes: Sequence[tuple[str, Numbers]]
    errors: Sequence[tuple[str, Numbers]]


@dataclass(frozen=True, slots=True)
class CulpritRows:
    """The rows of one culprit, empty if there is no file. If a file exists but is not shown, `damage` says why."""

    sides: Sequence[SideRow] = ()
    plot: ErrorPlot | None = None
    damage: str = ""


def culprit_rows(
    path: Path | None, culprit: Culprit, labels: Mapping[str, str], kernels: Mapping[str, RunKernels]
) -> CulpritRows:
    """Return the rows from the file at `path`. `labels` contains the mode of each side, and `kernels` the kernels of
    each mode's run."""
    if path is None:
        return CulpritRows()
    try:
        if path.stat().st_size > LARGEST_FILE:
            return CulpritRows(damage=f"{path.name} is not shown: it is larger than any file that numdrift writes")
        detail = DETAIL.read(path)
    except FileNotFoundError:
        return CulpritRows()
    except (JournalError, OSError) as error:
        why = str(error).removeprefix(f"{path}: ") if isinstance(error, JournalError) else error.strerror
        return CulpritRows(damage=f"{path.name} is not shown: {why}")
    errors, plot, damage = detail.errors, None, ""
    try:
        plot = None if errors is None else _plot(errors, labels)
    except ValueError as error:
        damage = f"the errors in {path.name} are not shown: {error}"
    rows = []
    for side, name in labels.items():
        row = _side(side, detail.sides.get(side, ExecutedSide(CALLS)), culprit, labels, kernels.get(name))
        if plot is not None and errors is not None:
            worst = f"at most {_number(errors.largest[side]):.3g}"
            row = replace(row, label=f"Errors of {name} in ULP over {plot.axes[0][0]}: {worst}")
        rows.append(row)
    return CulpritRows(rows, plot, damage)


def _side(
    side: str, executed: ExecutedSide, culprit: Culprit, labels: Mapping[str, str], run_kernels: RunKernels | None
) -> SideRow:
    if executed.how == NOTHING:
        return SideRow(labels[side], HOW[NOTHING])
    kernel = (culprit.kernel or {}).get(side)
    how = HOW.get(executed.how, "") if kernel is None else KERNELS.get(kernel, f"the kernel {kernel}")
    swapped = run_kernels.formula(kernel, _name(culprit)) if run_kernels is not None else ""
    generated, source = run_kernels.generated(culprit, labels) if run_kernels is not None else ("", "")
    lines = [f"    {line}" for line in executed.lines]
    code = "\n".join([f"def side_{side}({', '.join(executed.parameters)}):", *lines]) if lines else ""
    return SideRow(
        name=labels[side],
        how=f"{how}{_computed(culprit)}" if kernel == "aten" else how,
        formula=(swapped or "\n".join(executed.formula))[:LONGEST_CODE],
        code=code[:LONGEST_CODE],
        generated=generated,
        source=source,
    )


def _computed(culprit: Culprit) -> str:
    """Return words for the elementwise formula of an op; "" if the catalogue of kernels lacks the formula."""
    try:
        operation = built_in().operation(_name(culprit))
    except KernelNotFound:
        return ""
    return f" of {operation.summary}" if operation.exact else ""


def _name(culprit: Culprit) -> str:
    return (culprit.op or "").rpartition(".")[2]


def _plot(errors: ErrorsOverInputs, labels: Mapping[str, str]) -> ErrorPlot | None:
    """Build the plot; return None if one of its columns has no finite number. Raises ValueError if the columns do not
    match each other or the sides."""
    if set(errors.errors) != set(labels) or not all(
        set(labels) <= set(by_side) for by_side in (errors.dtypes, errors.largest, errors.not_finite)
    ):
        raise ValueError("they lack a side, or have an unknown side")
    if any(len(column) != errors.shown for column in (*errors.inputs.values(), *errors.errors.values())):
        raise ValueError("their columns differ in length")
    if not 0 < errors.shown <= min(MOST_SHOWN, errors.elements) or len(errors.inputs) > MOST_INPUTS:
        raise ValueError("they have an impossible number of elements or inputs")
    drawn = [(label, _finite(errors.errors[side])) for side, label in labels.items()]
    inputs = [(name, _finite(values)) for name, values in errors.inputs.items()]
    axes = [*inputs, (f"{errors.result} in double", _finite(errors.exact))]
    if not all(any(value is not None for value in values) for _, values in (*drawn, *axes)):
        return None
    return ErrorPlot(
        _counted(errors, labels), " and ".join(dict.fromkeys(errors.dtypes[side] for side in labels)), axes, drawn
    )


def _counted(errors: ErrorsOverInputs, labels: Mapping[str, str]) -> str:
    some = f"{errors.shown:,} of {errors.elements:,} elements, the largest errors of both sides among them"
    sentence = some if errors.shown < errors.elements else f"all {errors.elements:,} elements"
    infinite = [f"{errors.not_finite[side]:,} in {label}" for side, label in labels.items() if errors.not_finite[side]]
    return f"{sentence}; not finite: {', '.join(infinite)}" if infinite else sentence


def _finite(values: Sequence[float]) -> Numbers:
    return [value if math.isfinite(_number(value)) else None for value in values]


def _number(value: float) -> float:
    """Convert a number of the file to a float. An integer in JSON that is larger than any float becomes infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf

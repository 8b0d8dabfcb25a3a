"""What a check found: as one line a kernel, and as data for machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .check import ABSENT, FAILED, MEASURED, CheckRow
from .measures import QUANTILES, Bias, Measures

SCHEMA = 1

TOO_ALIKE = ("subnormal", "zero", "special", "ties")
"""Sets whose elements share their rounding errors, so that a common sign of these proves no bias."""


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """The worst of several rows of one kernel, each measure for itself.

    `where` names the case, and for ops of several outputs the output, with the largest error; empty when
    nothing is measured. Of `special`, where extremes overflow inside a kernel, only `remarks` tells as long
    as there are other rows; the bias leaves out `TOO_ALIKE`. `remarks` says where the kernel is not finite as
    it should be, and why it is not measured."""

    kernel: str
    status: str
    where: str
    max_ulp: float | None
    p99_ulp: float | None
    median_ulp: float | None
    rho: float | None
    bias: Bias | None
    differs: float | None
    remarks: str


def summary(rows: Sequence[CheckRow]) -> ErrorSummary:
    """Summarize rows of one kernel."""
    statuses = {row.status for row in rows}
    status = next(one for one in (FAILED, MEASURED, ABSENT) if one in statuses)
    measured = [row for row in rows if row.measures]
    remarks = [*_failures(rows), *([_non_finite(measured)] if measured else [])]
    telling = [row for row in measured if row.inputs != "special"] or measured
    fair = [row for row in telling if row.inputs not in TOO_ALIKE] or telling
    every = [one for row in telling for one in row.measures]
    worst = max(telling, key=lambda row: row.worst.error(1.0), default=None)
    return ErrorSummary(
        kernel=rows[0].kernel,
        status=status,
        where="" if worst is None else _place(worst),
        max_ulp=_largest(one.error(1.0) for one in every if one.errors),
        p99_ulp=_largest(one.error(0.99) for one in every if one.errors),
        median_ulp=_largest(one.error(0.5) for one in every if one.errors),
        rho=_largest(one.rho for one in every if one.rho is not None),
        bias=max((one.bias for row in fair for one in row.measures), key=lambda bias: abs(bias.z), default=None),
        differs=_largest(one.differs for one in every if one.differs is not None),
        remarks="; ".join(remarks),
    )


def by_kernel(rows: Iterable[CheckRow]) -> list[ErrorSummary]:
    """One summary for each kernel, in the order of the rows."""
    groups: dict[str, list[CheckRow]] = {}
    for row in rows:
        groups.setdefault(row.kernel, []).append(row)
    return [summary(group) for group in groups.values()]


def as_data(row: CheckRow) -> dict[str, Any]:
    """A row for JSON; numbers that JSON does not have are texts such as "inf"."""
    return {
        "kernel": row.kernel,
        "inputs": row.inputs,
        "variant": row.variant,
        "status": row.status,
        "why": row.why,
        "outputs": [_output(one) for one in row.measures],
    }


def _output(one: Measures) -> dict[str, Any]:
    got, exact = one.worst or (None, None)
    return {
        "output": one.output,
        "elements": one.elements,
        "finite": one.finite,
        "max_ulp": _plain(one.error(1.0)) if one.errors else None,
        "p99_ulp": _plain(one.error(0.99)) if one.errors else None,
        "median_ulp": _plain(one.error(0.5)) if one.errors else None,
        "quantiles": [[share, _plain(error)] for share, error in zip(QUANTILES, one.errors, strict=False)],
        "rho": _plain(one.rho),
        "bias_up": {"ulp": _plain(one.up.ulp), "z": one.up.z},
        "bias_from_zero": {"ulp": _plain(one.away.ulp), "z": one.away.z},
        "differs_from_aten": one.differs,
        "non_finite": one.mismatches,
        "worst": {"got": _plain(got), "expected": _plain(exact)},
    }


def _plain(number: float | None) -> float | str | None:
    return number if number is None or math.isfinite(number) else str(number)


def _largest(numbers: Iterable[float | None]) -> float | None:
    return max((one for one in numbers if one is not None), default=None)


def _place(row: CheckRow) -> str:
    output = row.worst.output
    return f"{row.label}, {output}" if output else row.label


def _non_finite(rows: Iterable[CheckRow]) -> str:
    counts: dict[str, int] = {}
    for one in (one for row in rows for one in row.measures):
        for kind, count in one.mismatches.items():
            counts[kind] = counts.get(kind, 0) + count
    return ", ".join(f"{kind}: {count:,}" for kind, count in counts.items()) or "agrees"


def _failures(rows: Sequence[CheckRow]) -> list[str]:
    """Each reason once, with the cases that it holds for unless these are all."""
    cases: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.status != MEASURED:
            cases.setdefault((row.status, row.why), []).append(row.label)
    return [
        f"{status}{'' if len(labels) == len(rows) else ' on ' + ', '.join(labels)}: {why}"
        for (status, why), labels in cases.items()
    ]

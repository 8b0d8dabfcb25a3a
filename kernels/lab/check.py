"""Compare every kernel of an op with one reference, on each set of inputs, and summarize the errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from numdrift.harness.errors import KernelError, NotAvailable
from numdrift.harness.torch_private.first_calls import settle_first_calls

from ..registry import Kernel, Operation
from .arguments import Case
from .calls import LabCall, Output, same
from .formats import INTEGERS, format_of
from .isolation import SECONDS, IsolatedKernel
from .measures import QUANTILES, Bias, Measures, measure
from .reference import Expected, expected, flat
from .trial import attempt

MEASURED, FAILED, ABSENT = "measured", "failed", "not available"

Progress = Callable[[int, int, str], None]
Run = Callable[[Sequence[LabCall]], list[list[Output]]]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One kernel on one case. `status` is measured, failed or not available; `why` is the reason for the latter two."""

    kernel: str
    inputs: str
    variant: str
    status: str
    why: str = ""
    measures: tuple[Measures, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.inputs} {self.variant}".strip()

    @property
    def worst(self) -> Measures:
        """The measures of the output with the largest error; if errors are equal, those with the most mismatches."""
        return max(
            self.measures,
            key=lambda measures: (measures.error(1.0), sum(measures.mismatches.values())),
        )


@dataclass(frozen=True, slots=True)
class Subjects:
    """The kernels to measure: records of the registry, and files of users.

    A file's kernel is named after the file's stem, which is unique. `seconds` is the time limit for loading a file, and
    for each case. `opener` makes a device ready in the process of a file's kernel (see `IsolatedKernel`).
    """

    kernels: Sequence[Kernel]
    files: Sequence[Path] = ()
    seconds: float = SECONDS
    opener: str = ""

    def __len__(self) -> int:
        return len(self.kernels) + len(self.files)


def check(
    operation: Operation,
    subjects: Subjects,
    cases: Sequence[Case],
    *,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = lambda done, total, what: None,
) -> list[CheckRow]:
    """Measure each subject on each case. Rows are grouped by kernel; the rows of a kernel are in the order of `cases`.

    A kernel that fails has rows as well. Files run in separate processes. Raises UsageError if the op cannot be
    executed in float64, or if a file is not a kernel or cannot be loaded.
    """
    settle_first_calls()
    rows: dict[str, list[CheckRow]] = {}
    done, total = 0, len(cases) * (len(subjects) + 1)
    plain = Kernel(operation.name, "aten", "", "", "numdrift.kernels.generic:aten", of_any_op=True)
    with ExitStack() as stack:
        runs: dict[str, Run] = {kernel.name: partial(attempt, kernel, device=device) for kernel in subjects.kernels}
        for path in subjects.files:
            isolated = IsolatedKernel(
                operation.name, path, device=device, seconds=subjects.seconds, opener=subjects.opener
            )
            stack.enter_context(isolated)
            with suppress(NotAvailable):  # the rows report the failure
                isolated.load()
            runs[path.stem] = isolated.run
        for case in cases:
            progress(done, total, f"reference on {case.label}")
            wanted = expected(operation, case, seed)
            aten = None
            with suppress(KernelError, NotAvailable):  # torch may have no kernel for this dtype or device
                aten = attempt(plain, case.calls, device)
            done += 1
            for name, run in runs.items():
                progress(done, total, f"{name} on {case.label}")
                rows.setdefault(name, []).append(_row(name, case, run, wanted, aten))
                done += 1
    progress(total, total, "done")
    return [row for kernel in rows.values() for row in kernel]


def _row(name: str, case: Case, run: Run, wanted: Sequence[Expected], aten: list[list[Output]] | None) -> CheckRow:
    row = CheckRow(name, case.inputs, case.variant, MEASURED)
    try:
        results = _by_name(run(case.calls))
    except NotAvailable as error:
        return replace(row, status=ABSENT, why=error.why)
    except KernelError as error:
        return replace(row, status=FAILED, why=str(error).removeprefix(f"kernel {error.kernel} "))
    originals = _by_name(aten or ())
    measures = []
    for reference_output in wanted:
        got, original = results[reference_output.name], originals.get(reference_output.name)
        dtype = got[0].dtype
        form = INTEGERS
        if dtype.is_floating_point or dtype.is_complex:
            form = format_of(dtype.to_real())
        differs = None
        if original is not None:
            equal = np.concatenate([same(*pair).reshape(-1).numpy() for pair in zip(got, original, strict=True)])
            differs = float(1 - equal.mean()) if equal.size else 0.0
        # the reference may have been evaluated at only some elements: mpmath is slow
        measures.append(measure(flat(got)[reference_output.positions], form, reference_output, differs))
    return replace(row, measures=tuple(measures))


def _by_name(results: Iterable[Iterable[Output]]) -> dict[str, list[torch.Tensor]]:
    """Return the tensors of each output, from all calls."""
    parts: dict[str, list[torch.Tensor]] = {}
    for result in results:
        for output in result:
            parts.setdefault(output.name, []).extend(output.tensors)
    return parts


# The results of a check: a summary of each kernel, and each row as JSON.

SCHEMA = 1

TOO_ALIKE = ("subnormal", "zero", "special", "ties")
"""Sets whose elements have correlated rounding errors, so that a common sign of the errors is not evidence of bias."""


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """The worst values of several rows of one kernel, separately for each measure.

    where: the case with the largest error, and the output if the op has several; empty if nothing is measured
    bias: measured without the sets in `TOO_ALIKE`, unless there are no others
    remarks: the reasons for missing measurements, and counts of results of the wrong kind (NaN, an infinity or finite)

    The extremes in the set `special` overflow inside a kernel. If there are rows of other sets, `special` therefore
    appears only in `remarks`.
    """

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
    status = next(candidate for candidate in (FAILED, MEASURED, ABSENT) if candidate in statuses)
    measured = [row for row in rows if row.measures]

    # Each reason for a missing measurement appears once, with its cases unless it applies to all.
    cases: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.status != MEASURED:
            cases.setdefault((row.status, row.why), []).append(row.label)
    remarks = [
        f"{what}{'' if len(labels) == len(rows) else ' on ' + ', '.join(labels)}: {why}"
        for (what, why), labels in cases.items()
    ]
    if measured:
        counts: Counter[str] = Counter()
        for row in measured:
            for measures in row.measures:
                counts.update(measures.mismatches)
        remarks.append(", ".join(f"{kind}: {count:,}" for kind, count in counts.items()) or "agrees")

    telling = [row for row in measured if row.inputs != "special"] or measured
    fair = [row for row in telling if row.inputs not in TOO_ALIKE] or telling
    every = [measures for row in telling for measures in row.measures]
    worst = max(telling, key=lambda row: row.worst.error(1.0), default=None)
    output = "" if worst is None else worst.worst.output
    return ErrorSummary(
        kernel=rows[0].kernel,
        status=status,
        where="" if worst is None else f"{worst.label}, {output}" if output else worst.label,
        max_ulp=max((measures.error(1.0) for measures in every if measures.errors), default=None),
        p99_ulp=max((measures.error(0.99) for measures in every if measures.errors), default=None),
        median_ulp=max((measures.error(0.5) for measures in every if measures.errors), default=None),
        rho=max((measures.rho for measures in every if measures.rho is not None), default=None),
        bias=max(
            (measures.bias for row in fair for measures in row.measures), key=lambda bias: abs(bias.z), default=None
        ),
        differs=max((measures.differs for measures in every if measures.differs is not None), default=None),
        remarks="; ".join(remarks),
    )


def by_kernel(rows: Iterable[CheckRow]) -> list[ErrorSummary]:
    """Return one summary for each kernel, in the order of the rows."""
    groups: dict[str, list[CheckRow]] = {}
    for row in rows:
        groups.setdefault(row.kernel, []).append(row)
    return [summary(group) for group in groups.values()]


def as_data(row: CheckRow) -> dict[str, Any]:
    """Return a row for JSON, with strings such as "inf" for numbers that JSON lacks."""
    return {
        "kernel": row.kernel,
        "inputs": row.inputs,
        "variant": row.variant,
        "status": row.status,
        "why": row.why,
        "outputs": [_output(measures) for measures in row.measures],
    }


def _output(measures: Measures) -> dict[str, Any]:
    got, exact = measures.worst or (None, None)
    return {
        "output": measures.output,
        "elements": measures.elements,
        "finite": measures.finite,
        "max_ulp": _plain(measures.error(1.0)) if measures.errors else None,
        "p99_ulp": _plain(measures.error(0.99)) if measures.errors else None,
        "median_ulp": _plain(measures.error(0.5)) if measures.errors else None,
        "quantiles": [[share, _plain(error)] for share, error in zip(QUANTILES, measures.errors, strict=False)],
        "rho": _plain(measures.rho),
        "bias_up": {"ulp": _plain(measures.up.ulp), "z": measures.up.z},
        "bias_from_zero": {"ulp": _plain(measures.away.ulp), "z": measures.away.z},
        "differs_from_aten": measures.differs,
        "non_finite": measures.mismatches,
        "worst": {"got": _plain(got), "expected": _plain(exact)},
    }


def _plain(number: float | None) -> float | str | None:
    return number if number is None or math.isfinite(number) else str(number)

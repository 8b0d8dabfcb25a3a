"""Every kernel of an op held against one reference, on each set of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from numdrift.harness.errors import KernelError, NotAvailable

from ..registry import Kernel, Operation
from .arguments import Case
from .calls import Output, same
from .formats import INTEGERS, format_of
from .isolation import SECONDS, IsolatedKernel
from .measures import Measures, measure
from .reference import Expected, expected, flat
from .trial import attempt

MEASURED, FAILED, ABSENT = "measured", "failed", "not available"

Progress = Callable[[int, int, str], None]
Run = Callable[[Case], list[list[Output]]]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One kernel on one case. `status` is measured, failed or not available; `why` says why it is not
    measured."""

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
        """The output with the largest error, then with the most elements that are not finite as they should
        be."""
        return max(self.measures, key=lambda one: (one.error(1.0), sum(one.mismatches.values())))


@dataclass(frozen=True, slots=True)
class Subjects:
    """What is to be measured: kernels of the registry by record, users' kernels by file.

    A file's kernel has its stem as name, which no other has. `seconds` are for loading it, and for each case.
    """

    kernels: Sequence[Kernel]
    files: Sequence[Path] = ()
    seconds: float = SECONDS

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
    """Measure each subject on each case: the rows of one kernel after those of another, cases in their order.

    A kernel that fails is a row. Raises UsageError when the op cannot be replayed in float64, or a file is no
    kernel or cannot be loaded. Files run in processes of their own.
    """
    rows: dict[str, list[CheckRow]] = {}
    done, total = 0, len(cases) * (len(subjects) + 1)
    with ExitStack() as stack:
        runs = _runs(operation.name, subjects, device, stack)
        for case in cases:
            progress(done, total, f"reference on {case.label}")
            wanted = expected(operation, case, seed)
            aten = _aten(operation.name, case, device)
            done += 1
            for name, run in runs.items():
                progress(done, total, f"{name} on {case.label}")
                rows.setdefault(name, []).append(_row(name, case, run, wanted, aten))
                done += 1
    progress(total, total, "done")
    return [row for kernel in rows.values() for row in kernel]


def _runs(op: str, subjects: Subjects, device: str, stack: ExitStack) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for kernel in subjects.kernels:
        runs[kernel.name] = _in_process(kernel, device)
    for path in subjects.files:
        isolated = stack.enter_context(IsolatedKernel(op, path, device=device, seconds=subjects.seconds))
        with suppress(NotAvailable):  # the rows say it
            isolated.load()
        runs[path.stem] = _isolated(isolated)
    return runs


def _isolated(kernel: IsolatedKernel) -> Run:
    return lambda case: kernel.run(list(case.calls))


def _in_process(kernel: Kernel, device: str) -> Run:
    return lambda case: attempt(kernel, case.calls, device)


def _aten(op: str, case: Case, device: str) -> list[list[Output]] | None:
    """What torch's own kernel gives, None where it has none for this dtype or device."""
    kernel = Kernel(op, "aten", "", "", "numdrift.kernels.generic:aten", of_any_op=True)
    try:
        return attempt(kernel, case.calls, device)
    except (KernelError, NotAvailable):
        return None


def _row(name: str, case: Case, run: Run, wanted: Sequence[Expected], aten: list[list[Output]] | None) -> CheckRow:
    row = CheckRow(name, case.inputs, case.variant, MEASURED)
    try:
        got = _by_name(run(case))
    except NotAvailable as error:
        return replace(row, status=ABSENT, why=error.why)
    except KernelError as error:
        return replace(row, status=FAILED, why=str(error).removeprefix(f"kernel {error.kernel} "))
    original = _by_name(aten) if aten is not None else {}
    return replace(row, measures=tuple(_measured(got[one.name], one, original.get(one.name)) for one in wanted))


def _by_name(results: Iterable[Iterable[Output]]) -> dict[str, list[torch.Tensor]]:
    parts: dict[str, list[torch.Tensor]] = {}
    for result in results:
        for output in result:
            parts.setdefault(output.name, []).extend(output.tensors)
    return parts


def _measured(got: list[torch.Tensor], one: Expected, aten: list[torch.Tensor] | None) -> Measures:
    dtype = got[0].dtype
    values = flat(got)
    form = INTEGERS
    if dtype.is_floating_point:
        form = format_of(dtype)
    elif dtype.is_complex:
        form = format_of(dtype.to_real())
    differs = None
    if aten is not None:
        equal = np.concatenate([same(*pair).reshape(-1).numpy() for pair in zip(got, aten, strict=True)])
        differs = float(1 - equal.mean()) if equal.size else 0.0
    return measure(values[one.positions], form, one, differs)

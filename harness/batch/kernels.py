"""The kernels that a batch swaps: whether they are there, and whether they ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numdrift.kernels.swaps.counts import SwapCounts, read_counts
from numdrift.kernels.swaps.find import check_op, check_swaps, known_kernels
from numdrift.kernels.swaps.request import SwapRequest, swap_requests

from ..errors import ModeError, UsageError
from ..modes.spec import ModeSpec
from ..recorder import frames


def requests_of(spec: ModeSpec) -> tuple[SwapRequest, ...]:
    """The swaps of a mode. Raises ModeError for a key that is none."""
    try:
        return swap_requests(spec.kernel, spec.decompose)
    except UsageError as error:
        raise ModeError(str(spec), "", str(error)) from None


def check_kernels(specs: Sequence[ModeSpec], own: Sequence[tuple[str, Path]], traced: Sequence[str]) -> None:
    """Find what is wrong with the kernels of a batch before any process starts. Raises UsageError."""
    registry = known_kernels(own)
    for spec in specs:
        try:
            check_swaps(requests_of(spec), registry)
        except ModeError:
            raise
        except UsageError as error:
            raise UsageError(f"mode {spec.name!r}: {error}") from None
    for op in traced:
        check_op(op, registry)
    asked = {(request.op, request.kernel) for spec in specs for request in requests_of(spec)}
    for op, path in own:
        if (op, path.stem) not in asked:
            raise UsageError(
                f"--kernel {op}={path} is used by no mode; add one, as in "
                f'--mode "{path.stem}=cpu,kernel.{op}={path.stem}"'
            )


def swaps_of_run(spec: ModeSpec, journal: Path, described: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the manifest says of each swap of a run: `described` by its process, and the calls that were counted."""
    counts = counts_of_run(spec, journal)
    return [one | {"calls": count.by_phase()} for one, count in zip(described, counts, strict=False)]


def counts_of_run(spec: ModeSpec, journal: Path) -> list[SwapCounts]:
    return read_counts(journal / frames.KERNELS, len(requests_of(spec)))


def never_executed(spec: ModeSpec, journal: Path) -> list[str]:
    """A line on each swap that had no effect in a run."""
    lines = []
    for request, count in zip(requests_of(spec), counts_of_run(spec, journal), strict=True):
        if not count.calls and not count.traced:
            place = f" in module {request.module}" if request.module else ""
            nth = f" for a {request.occurrence + 1}th time in a step" if request.occurrence else ""
            lines.append(
                f"{request} was never executed: the reproducer calls no aten.{request.op.removeprefix('aten.')}"
                f"{place}{nth} in this mode"
            )
    return lines


def inside_kernel(spec: ModeSpec, journal: Path) -> str:
    """The kernel that was running when a process ended, as the end of a message; "" when none was."""
    for request, count in zip(requests_of(spec), counts_of_run(spec, journal), strict=True):
        if count.running:
            return f", inside the kernel of {request}"
    return ""

"""The kernels that a batch swaps: checks that they exist, and that they were executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numdrift.kernels.registry import load_target
from numdrift.kernels.swaps.counts import SwapCounts, read_counts
from numdrift.kernels.swaps.request import SwapRequest, check_op, check_swaps, known_kernels, swap_requests

from ..errors import ModeError, UsageError
from ..records import frames
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import ModeSpec

OwnKernels = Mapping[str, Path | str] | Sequence[tuple[str, Path] | str]
"""The user's own kernels: paths by op, pairs of op and path (if an op has several kernels), or texts `OP=PATH`."""


def own_kernels(kernels: OwnKernels | None) -> tuple[tuple[str, Path], ...]:
    """Return the ops, without `aten.`, and the paths of the user's own kernels. Raises UsageError for a text that is
    not OP=PATH."""
    pairs = []
    for kernel in kernels.items() if isinstance(kernels, Mapping) else kernels or ():
        op, equals, path = kernel.partition("=") if isinstance(kernel, str) else (kernel[0], "=", kernel[1])
        if not (op and equals and path):
            raise UsageError(f"--kernel {kernel!r} is not OP=PATH, as in --kernel tanh_backward=mine.c")
        pairs.append((op.removeprefix("aten."), Path(path)))
    return tuple(pairs)


def requests_of(spec: ModeSpec) -> tuple[SwapRequest, ...]:
    """Return the swaps of a mode. Raises ModeError for a key that is not a swap."""
    try:
        return swap_requests(spec.kernel, spec.decompose)
    except UsageError as error:
        raise ModeError(str(spec), "", str(error)) from None


def check_kernels(specs: Sequence[ModeSpec], own: Sequence[tuple[str, Path]], traced: Sequence[str]) -> None:
    """Check the kernels of a batch before any process starts. Raises UsageError."""
    kernels = known_kernels(own, run=False)
    requested = set()
    for spec in specs:
        requests = requests_of(spec)
        requested |= {(request.op, request.kernel) for request in requests}
        try:
            if spec.capabilities.compiles:
                _check_backend(spec, requests)
            device = spec.device or registry.device(spec.base)
            check_swaps(requests, kernels, device)
        except UsageError as error:
            raise UsageError(f"mode {spec.name!r}: {error}") from None
    for op in traced:
        check_op(op, kernels)
    # A kernel that no mode names would be built but never run, which looks like a kernel that changes nothing.
    for op, path in own:
        if (op, path.stem) not in requested:
            raise UsageError(
                f'no mode uses --kernel {op}={path}; add one, as in --mode "{path.stem}=cpu,kernel.{op}={path.stem}"'
            )


def _check_backend(spec: ModeSpec, requests: Sequence[SwapRequest]) -> None:
    """Check that the mode's compiler backend supports the swaps: some stages decompose nothing and know no modules.

    Raises UsageError.
    """
    for request in requests:
        # This check comes last, and its function is loaded by name, because importing its module imports torch.
        of_others = request.from_decomposition and spec.backend not in (None, "inductor")
        if of_others and load_target("numdrift.kernels.swaps.composites:is_composite")(request.op):
            raise UsageError(
                f"{request}: only the graphs that Inductor receives keep aten.{request.op} whole, and backend "
                f"{spec.backend} has no such graphs; leave the key out, or choose backend=inductor"
            )
        if spec.backend not in ("eager", "aot_eager"):
            continue
        if request.from_decomposition or request.module is not None:
            lacks = "decomposes nothing" if request.from_decomposition else "has no module paths at run time"
            raise UsageError(
                f"{request}: backend {spec.backend} {lacks}; leave the key out, or choose backend=inductor or "
                "aot_eager_decomp_partition"
            )


def swaps_of_run(spec: ModeSpec, journal: Path, described: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the manifest's entry for each swap of a run.

    An entry combines the description that the run's process wrote, from `described`, with the counts of the calls.
    """
    # Not strict: a process that failed before its swaps existed has described none of them.
    counts = counts_of_run(spec, journal)
    return [swap | {"calls": count.by_phase()} for swap, count in zip(described, counts, strict=False)]


def counts_of_run(spec: ModeSpec, journal: Path) -> list[SwapCounts]:
    return read_counts(journal / frames.KERNELS, len(requests_of(spec)))


def never_executed(spec: ModeSpec, journal: Path, modules_by_op: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each swap that had no effect in a run.

    `modules_by_op` lists the modules that called each op.
    """
    lines = []
    for request, count in zip(requests_of(spec), counts_of_run(spec, journal), strict=True):
        # A swap that was traced into a compiled graph also counts, whether or not that graph was executed.
        if count.calls or count.traced:
            continue
        line = f"{request} was never executed: "
        if modules := modules_by_op.get(request.op):
            called = ", ".join(module or "the outermost module" for module in modules)
            line += f"aten.{request.op} is called in {called}"
        else:
            line += f"in this mode, the script never calls aten.{request.op} with floating-point tensors"
        if request.occurrence is not None:
            unit = "compiled graph" if spec.capabilities.compiles else "step"
            line += f"; :{request.occurrence} means call number {request.occurrence + 1} of a {unit}"
        lines.append(line)
    return lines


def inside_kernel(spec: ModeSpec, journal: Path) -> str:
    """Return the kernel that was running when a process ended, as the end of a message; "" if none was."""
    for request, count in zip(requests_of(spec), counts_of_run(spec, journal), strict=True):
        if count.running:
            return f", inside the kernel of {request}"
    return ""

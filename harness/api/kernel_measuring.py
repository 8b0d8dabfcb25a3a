"""Measures kernels for `numdrift kernels check` and `kernels sweep`, after refusing those that cannot be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from numdrift.kernels.lab import sweep_state
from numdrift.kernels.lab.arguments import generated, overloads
from numdrift.kernels.lab.captured import captured, stdout_to_stderr
from numdrift.kernels.lab.check import CheckRow, Progress, Subjects, check
from numdrift.kernels.lab.input_sets import CAPTURED, INPUT_SETS, parse_inputs
from numdrift.kernels.lab.reference import describe
from numdrift.kernels.lab.sweep import Sweep
from numdrift.kernels.lab.sweep_bins import fastest_reduction
from numdrift.kernels.lab.sweep_candidates import Candidate, candidates
from numdrift.kernels.lab.sweep_domain import ENCODINGS, Domain
from numdrift.kernels.lab.sweep_result import KernelErrors, Zoom, zoom_on_worst
from numdrift.kernels.lab.sweep_state import SweepProgress
from numdrift.kernels.lab.sweep_subject import Subject, roundings, subject_of
from numdrift.kernels.registry import built_in, op_name
from numdrift.kernels.user import device_kinds

from ..backends.mode_presence import OPENER
from ..backends.opened_device import open_devices
from ..errors import CollisionError, NotAvailable, UsageError, nearest
from ..records.run.surroundings import cores

ShownSweep = Callable[[str, int, int], AbstractContextManager[Callable[[int], None]]]
"""Shows the sweep of one kernel. Takes the kernel's label, the number of inputs and the number already measured; yields
a function that receives the progress."""


def refuse_outputs(plot: Path | None, json_path: str | None, *, force: bool) -> None:
    """Raise, before anything is measured, if an output could not be written."""
    for path in (plot, Path(json_path) if json_path and json_path != "-" else None):
        if path is None:
            continue
        if path.exists() and not force:
            raise CollisionError(path, "choose another file, or replace it with --force")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def checked(
    op: str,
    *,
    kernels: Sequence[str],
    dtype: str,
    inputs: str | None,
    recorded: Path | None,
    samples: int,
    seed: int,
    device: str,
    timeout: float,
    progress: Progress,
) -> tuple[list[CheckRow], str]:
    """Measure kernels of an op on sets of inputs; return the rows, and a description of their reference.

    Raises UsageError, and NotAvailable for a device that this machine lacks.
    """
    subjects = _subjects(op, kernels, timeout)
    _open(device)
    names = parse_inputs(inputs) if inputs is not None else tuple(INPUT_SETS)
    if CAPTURED in names and recorded is None:
        raise UsageError("--inputs captured needs --captured RUN_OR_FILE")
    cases = [captured(op, recorded)] if recorded else []
    try:
        sets = [name for name in names if name != CAPTURED]
        cases = [*generated(op, sets, getattr(torch, dtype), samples, seed, device), *cases]
    except UsageError:  # no inputs can be generated for this op: recorded inputs suffice if no others were requested
        if not cases or inputs is not None:
            raise
    operation = built_in().operation(op)
    rows = check(operation, subjects, cases, seed=seed, device=device, progress=progress)
    return rows, describe(operation, getattr(torch, dtype))


def _open(device: str) -> None:
    """Open the device on which kernels are measured, for this process. The device may need a vendor's package.

    Raises UsageError, and NotAvailable for a device that this machine lacks.
    """
    try:
        open_devices([device])
        kind = torch.device(device).type
    except RuntimeError:
        hint = nearest(device.partition(":")[0], device_kinds()[1:])
        raise UsageError(f"--device {device} is not a torch device; {hint}") from None
    except NotAvailable as error:
        raise NotAvailable(f"--device {device}", error.why, "numdrift doctor shows which modes work") from None
    if kind == "meta":
        raise UsageError("--device meta computes nothing that could be measured")
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ImportError, NotImplementedError):  # depending on the backend
        why = "this machine has none, or this torch was built without support for it"
        raise NotAvailable(f"--device {device}", why, "numdrift doctor shows which modes work") from None


def _subjects(op: str, named: Sequence[str], seconds: float) -> Subjects:
    """Return the requested kernels. If all of them are files, add `aten`.

    Without a request, return all kernels of the op that are not `on_request`.
    """
    registry = built_in()
    overloads(op)  # raises for an op that torch lacks
    names: list[str] = []
    files: dict[str, Path] = {}
    for text in named:
        prefix, _, kernel = text.rpartition("=")
        if prefix and op_name(prefix) != op:
            raise UsageError(
                f"--kernel {text} names the op {prefix!r}, but the op {op!r} is checked; write {op}={kernel}"
            )
        if kernel.endswith((".c", ".py")):
            if not Path(kernel).is_file():
                raise UsageError(f"--kernel {text}: there is no file {kernel}")
            path = files.setdefault(registry.name_of_own(op, Path(kernel)), Path(kernel))
            if path != Path(kernel):
                raise UsageError(f"{path} is also named {path.stem!r}; give {kernel} a different name")
        elif "/" in kernel:
            raise UsageError(f"--kernel {text}: the name of a kernel file must end in .c or .py")
        else:
            names.append(kernel)
    if files and not names:
        names = ["aten"]
    if not named:
        return Subjects([entry for entry in registry.kernels(op) if not entry.on_request])
    listed = [registry.kernel(op, name) for name in dict.fromkeys(names)]
    return Subjects(listed, tuple(files.values()), seconds, OPENER)


@dataclass(frozen=True, slots=True)
class SweptKernels:
    """The errors of an op's kernels on all inputs of a domain, and a close look at the worst input."""

    subject: Subject
    domain: Domain
    found: Sequence[KernelErrors]
    zoom: Zoom | None
    reference: str


def swept(
    op: str,
    dtype: str,
    *,
    kernels: Sequence[str],
    vary: str | None,
    hold: Sequence[str],
    bounds: str | None,
    timeout: float,
    jobs: int | None,
    out: Path,
    fresh: bool,
    say: Callable[[str], None],
    shown: ShownSweep,
) -> SweptKernels:
    """Sweep the requested kernels, or reuse their kept results; `say` receives remarks for the user.

    Ctrl-C keeps the results so far. Raises UsageError.
    """
    encoding = ENCODINGS[dtype]
    domain = Domain.parse(encoding, bounds)
    subject = subject_of(op, encoding, vary, hold)
    large = encoding.width > 16 and domain.is_whole  # 2^32 inputs: minutes per kernel
    plain = domain.is_whole and not vary and not hold  # the usual sweep of an op, whose folder has a short name
    with stdout_to_stderr():  # compilers and a user's kernels may print anything
        chosen, notes = candidates(built_in(), subject, kernels, every=not large, seconds=timeout)
        notes += roundings(subject, hold)
        if large and not kernels:
            notes.append(
                "only aten is swept over all of float32; choose other kernels with --kernel, or fewer inputs with "
                "--range"
            )
        for note in notes:
            say(note)
        swept_kernels = [
            _swept(candidate, domain, jobs, out, plain=plain, fresh=fresh, say=say, shown=shown) for candidate in chosen
        ]
        zoom = zoom_on_worst(swept_kernels)
    reference = describe(replace(built_in().operation(op), exact=""), encoding.torch_dtype)
    return SweptKernels(subject, domain, swept_kernels, zoom, reference)


def _swept(
    candidate: Candidate,
    domain: Domain,
    jobs: int | None,
    out: Path,
    *,
    plain: bool,
    fresh: bool,
    say: Callable[[str], None],
    shown: ShownSweep,
) -> KernelErrors:
    """Sweep one kernel, continuing from its kept results."""
    label = candidate.label
    reduction, slower = fastest_reduction(domain.encoding)
    sweep = Sweep(candidate, domain, reduction, jobs=jobs or cores())
    identity = sweep.identity()
    folder = identity.folder(out, plain=plain)
    kept_progress, why = (None, "") if fresh else sweep_state.load(folder, identity, domain)
    progress = kept_progress or SweepProgress.none(domain)
    if why:
        say(f"{label}: the state in {folder} {why}: starting over")
    if progress.finished(domain):
        say(f"{label}: using the results in {folder} (--fresh measures again)")
        return KernelErrors(candidate, domain, progress)
    if slower:
        say(f"{label}: {slower}")
    if progress.inputs():
        say(f"{label}: continuing after {progress.inputs():,} of {domain.count:,} inputs kept in {folder}")
    try:
        with shown(label, domain.count, progress.inputs()) as report:
            sweep.run(progress, folder, report)  # the results go into `progress`, and from time to time into the folder
    except KeyboardInterrupt:
        status = f"{progress.inputs():,} of {domain.count:,} inputs are kept in {folder}"
        say(f"{label}: {status}; run the same command again to continue")
        raise
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; choose another folder with --out") from None
    return KernelErrors(candidate, domain, progress)

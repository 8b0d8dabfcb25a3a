"""The kernels that a sweep measures, and the reference with which it compares them."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from numdrift.harness.errors import KernelError, NotAvailable, UsageError

from ..native.source import checked_path
from ..registry import Kernel, KernelRegistry, load_target, op_name
from ..user import source_of, user_kernel
from .calls import LabCall
from .isolation import SECONDS, IsolatedKernel
from .sweep_domain import Encoding
from .sweep_subject import Subject

KERNELS = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel of the subject, with the reference in float64.

    `source` is the SHA-256 of the files that determine the results.
    """

    subject: Subject
    kernel: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    source: str

    @property
    def label(self) -> str:
        return f"{self.subject.op}={self.kernel}"

    def results(self, inputs: torch.Tensor) -> NDArray[np.float32]:
        """Return the kernel's results for inputs [n] as an array [n] in float32; this conversion does not round.

        Raises KernelError if the kernel raises an error, or if its result differs from the inputs in shape or dtype.
        """
        try:
            results = self.subject.call(self.function, inputs)
        except NotAvailable:
            raise
        except Exception as error:
            why = str(error).splitlines()[0] if str(error) else "no message"
            raise KernelError(self.label, f"raised {type(error).__name__}: {why}") from error
        if not isinstance(results, torch.Tensor) or results.shape != inputs.shape or results.dtype != inputs.dtype:
            raise KernelError(self.label, f"returned {_kind(results)} instead of {_kind(inputs)}")
        exact: NDArray[np.float32] = results.to(torch.float32).contiguous().numpy()
        return exact

    def exact_results(self, inputs: torch.Tensor) -> NDArray[np.float64]:
        """Return the reference's results for inputs [n] as an array [n] in float64."""
        wanted = self.subject.call(self.reference, inputs.to(torch.float64))
        exact: NDArray[np.float64] = wanted.contiguous().numpy()
        return exact


def candidates(
    registry: KernelRegistry,
    subject: Subject,
    names: Sequence[str],
    *,
    every: bool,
    seconds: float = SECONDS,
) -> tuple[list[Candidate], list[str]]:
    """Return the kernels to sweep, and notes about those that are left out.

    names: the requested kernels, including .c or .py files of the user
    every: if `names` is empty, true to sweep all kernels except those that must be requested by name, false to sweep
        only `aten`
    seconds: the time limit for loading a file, and for a first call of its kernel

    Raises KernelNotFound for an unknown name, CompileError for a file that does not compile, and UsageError,
    NotAvailable or KernelError for a requested kernel that does not work here.
    """
    selected = list(dict.fromkeys(_named(registry, subject, name, seconds) for name in names))
    first: dict[str, Kernel] = {}
    for kernel in selected:
        namesake = first.setdefault(kernel.name, kernel)
        if namesake is not kernel:  # two files with one name in different folders
            raise UsageError(f"{namesake.path} is also named {kernel.name!r}; give {kernel.path} another name")
    if not selected:
        selected = [
            available
            for available in registry.kernels(subject.op)
            if (every and not available.on_request) or available.name == "aten"
        ]
    dtype, reference = subject.encoding.name, registry.operation(subject.op).reference
    chosen, notes = [], []
    for kernel in selected:
        try:
            if not kernel.supports(dtype, "cpu"):
                where = ", ".join(kernel.dtypes if dtype not in kernel.dtypes else kernel.devices)
                raise UsageError(
                    f"kernel {kernel.op}={kernel.name} does not compute {dtype} on a CPU; it supports only {where}"
                )
            candidate = Candidate(
                subject=subject,
                kernel=kernel.name,
                function=kernel.load(subject.op),
                reference=load_target(reference) if reference else subject.overload,
                source=_source(kernel, reference),
            )
            candidate.results(probe(subject.encoding))
            chosen.append(candidate)
        except (NotAvailable, UsageError, KernelError) as error:
            if names or kernel.name == "aten":
                raise
            notes.append(f"left out: {error}")
    return chosen, notes


def _named(registry: KernelRegistry, subject: Subject, text: str, seconds: float) -> Kernel:
    """Return a kernel by its name, or from a file.

    A kernel from a file is first called in a separate process, because it may crash.
    """
    op, _, name = text.rpartition("=")
    op = op_name(op)
    if op and op != subject.op:
        raise UsageError(f"--kernel {text} is a kernel of {op!r}, but the sweep measures {subject.op!r}")
    if not name.endswith((".c", ".py")):
        return registry.kernel(subject.op, name)
    path = checked_path(Path(name))
    registry.name_of_own(subject.op, Path(name))
    args, kwargs = subject.arguments(probe(subject.encoding))
    with IsolatedKernel(subject.op, path, seconds=seconds) as isolated:
        isolated.load()
        kernel = user_kernel(subject.op, path)
        if kernel.supports(subject.encoding.name, "cpu"):
            isolated.run([LabCall(tuple(args), kwargs)])
    return kernel


def probe(encoding: Encoding) -> torch.Tensor:
    """Return 1 and the next 15 numbers above it, the inputs of a kernel's first call."""
    one_pattern = encoding.infinity // 2 & ~((1 << encoding.stored) - 1)
    return encoding.tensor(one_pattern, 16)


def _source(kernel: Kernel, reference: str) -> str:
    """Return the SHA-256 of the files of kernel and reference. For numdrift's own, all files in their folders count."""
    # numdrift's kernels may call any other kernel in their folder; these calls are not tracked, so all files count.
    paths: list[Path] = []
    for target in (kernel.target, reference):
        file = getattr(importlib.import_module(target.partition(":")[0]), "__file__", None) if target else None
        if file is not None:
            is_shipped = KERNELS in Path(file).parents
            paths += sorted(Path(file).parent.glob("*.py")) if is_shipped else [Path(file)]
    if kernel.native and not kernel.path:
        paths += [path for path in sorted((KERNELS / "native").glob("*")) if path.suffix in (".c", ".h", ".py")]
    digest = hashlib.sha256(repr((kernel.target, kernel.op, reference)).encode())
    if kernel.path:
        digest.update(source_of(kernel.op, Path(kernel.path)))
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"a {type(value).__name__}"

"""A C kernel that a user brings, as a function of tensors."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from numdrift.harness.compiler import Library, compile_library
from numdrift.harness.errors import KernelError, UsageError

from .library import has_memory
from .signature import C_TYPES, KernelSignature
from .source import user_source


@dataclass(frozen=True, slots=True)
class CKernel:
    """The functions of a compiled file by dtype, called as an op is called.

    `name` is `op=name`. The result is contiguous, of the operands' common shape and dtype, on the device of the
    first one; operands elsewhere than on the CPU are copied there first (a lazy one is thereby computed).
    """

    name: str
    signature: KernelSignature
    functions: Mapping[torch.dtype, Callable[..., None]]

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        try:
            values = self.signature.values(args, kwargs)
        except TypeError as error:
            raise KernelError(self.name, f"cannot be called: {error}") from None
        tensors = {name: values[name] for name in self.signature.named("tensor") if values[name] is not None}
        given = [one for one in tensors.values() if isinstance(one, torch.Tensor)]
        dtype = self._dtype(given)
        if any(one.is_meta for one in given):
            raise self._without_values()
        on_cpu = [_on_cpu(one, dtype) for one in tensors.values()]
        operands = [one.contiguous() for one in torch.broadcast_tensors(*on_cpu)]
        result = torch.empty(operands[0].shape, dtype=dtype, device="cpu")
        if not all(map(has_memory, (*operands, result))):
            raise self._without_values()
        pointers = dict(zip(tensors, (one.data_ptr() for one in operands), strict=True))
        self.functions[dtype](
            result.numel(),
            *(_scalar(one.kind, values[one.name]) for one in self.signature.scalars()),
            *(pointers.get(name) for name in self.signature.named("tensor")),
            result.data_ptr(),
        )
        return result.to(given[0].device)

    def _without_values(self) -> KernelError:
        return KernelError(self.name, "is C and cannot be traced: its tensors have no values here")

    def _dtype(self, tensors: list[torch.Tensor]) -> torch.dtype:
        """The dtype to compute in, that of the tensors which have dimensions, if the file has a function for
        it."""
        dtypes = {one.dtype for one in tensors if one.dim()} or {one.dtype for one in tensors}
        if len(dtypes) == 1 and dtypes <= self.functions.keys():
            return dtypes.pop()
        asked = " and ".join(sorted(str(one).removeprefix("torch.") for one in dtypes))
        known = ", ".join(str(one).removeprefix("torch.") for one in self.functions)
        raise KernelError(self.name, f"computes {known}, and was called with {asked}")


def exported(path: Path, library: Library) -> dict[str, Callable[..., None]]:
    """The functions `kernel_<dtype>` of a compiled file, by dtype. Raises UsageError if it cannot be loaded."""
    try:
        handle = ctypes.CDLL(str(library.path))
    except OSError as error:
        raise UsageError(f"{path} compiles and cannot be loaded: {error}") from None
    return {dtype: handle[f"kernel_{dtype}"] for dtype in C_TYPES if hasattr(handle, f"kernel_{dtype}")}


def bind(path: Path, signature: KernelSignature) -> CKernel:
    """Compile a user's C file for an op.

    Raises UsageError for an op that is not elementwise and for a file without the function that the op needs;
    what `compile_library` raises.
    """
    if not signature.is_elementwise():
        raise UsageError(
            f"{path}: a kernel in C computes element by element, and aten.{signature.op} does not; "
            f"write it in Python: `{signature.in_python()}`"
        )
    functions = exported(path, compile_library(user_source(path)))
    if not functions:
        raise UsageError(f"{path} defines no `{signature.in_c('float32')}` (nor kernel_float64)")
    scalars = [ctypes.c_double if one.kind == "number" else ctypes.c_char_p for one in signature.scalars()]
    pointers = [ctypes.c_void_p] * (len(signature.named("tensor")) + 1)
    bound: dict[torch.dtype, Callable[..., None]] = {}
    for dtype, function in functions.items():
        function.argtypes, function.restype = [ctypes.c_int64, *scalars, *pointers], None  # type: ignore[attr-defined]
        bound[getattr(torch, dtype)] = function
    return CKernel(f"{signature.op}={path.stem}", signature, bound)


def _on_cpu(value: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to("cpu", dtype).resolve_neg()
    return torch.tensor(value, dtype=dtype, device="cpu")


def _scalar(kind: str, value: Any) -> Any:
    if kind == "number":
        return math.nan if value is None else float(value)
    return None if value is None else value.encode()

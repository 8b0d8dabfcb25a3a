"""The C kernels that numdrift ships, as functions of tensors.

Each function returns None if its kernel does not apply: without a compiler, for tensors on a device or of a dtype that
the kernel does not support, and for tensors without memory (lazy, meta, fake, functional). The caller then computes the
same bits with torch's operations.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from numdrift.harness.compiler import Library, compile_library
from numdrift.harness.errors import NumdriftError

from .source import shipped_source

ELEMENTWISE = {
    "tanh_backward_fma": (2, 0),
    "tanh_backward_mac": (2, 0),
    "tanh_backward_mac_unfused": (2, 0),
    "tanh_backward_decomposed": (2, 0),
    "tanh_backward_factored": (2, 0),
    "sigmoid_backward_fma": (2, 0),
    "addcmul_fma": (3, 1),
    "lerp_fma": (3, 0),
    "fma": (3, 0),
}
"""The numbers of tensors and scalars that each kernel of elementwise.c takes; that file contains the formulas."""

ROWS = ("sum_sequential", "sum_pairwise", "sum_kahan")
"""The kernels of rows.c; that file contains their orders of summation."""

SUFFIXES = {torch.float32: "float32", torch.float64: "float64"}
"""The suffixes of the shipped kernels' symbols, by dtype."""

Functions = dict[tuple[str, torch.dtype], Callable[..., None]]

_PLAIN = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True, slots=True)
class NativeKernels:
    """The functions by name and dtype; if they are not available, `functions` is empty and `reason` says why."""

    functions: Functions
    hardware_fma: bool = False
    reason: str = ""


def elementwise(name: str, tensors: Sequence[torch.Tensor], scalars: Sequence[float] = ()) -> torch.Tensor | None:
    """Call a C kernel element by element, on broadcast operands in the order of the op's arguments.

    tensors: float32 or float64, all of one dtype, any shapes that broadcast, any strides.
    Returns a contiguous tensor of the common shape and dtype, or None where the kernel does not apply. Raises
    ValueError for an unknown kernel or a wrong number of operands.
    """
    if ELEMENTWISE.get(name) != (len(tensors), len(scalars)):
        raise ValueError(
            f"there is no kernel {name!r} that takes {len(tensors)} tensors and {len(scalars)} scalars; "
            f"there are {ELEMENTWISE}"
        )
    function = _kernel_for(name, tensors)
    if function is None:
        return None
    # Broadcast the operands and make them contiguous; tensors that already fit are not copied.
    operands, shape = tensors, tensors[0].shape
    if not all(tensor.shape == shape and tensor.is_contiguous() and not tensor.is_neg() for tensor in tensors):
        spread = torch.broadcast_tensors(*(tensor.resolve_neg() for tensor in tensors))
        operands = [tensor.contiguous() for tensor in spread]
    result = torch.empty(operands[0].shape, dtype=operands[0].dtype, device="cpu")
    if not all(map(has_memory, (*operands, result))):
        return None
    function(result.numel(), *(operand.data_ptr() for operand in operands), *scalars, result.data_ptr())
    return result


def rows(name: str, matrix: torch.Tensor) -> torch.Tensor | None:
    """Call a C kernel that reduces each row of a [rows, columns] matrix to one number.

    matrix: float32 or float64, any strides. Returns [rows] of the same dtype, or None where the kernel does not apply.
    Raises ValueError for an unknown kernel, or a tensor that is not a matrix.
    """
    if name not in ROWS or matrix.dim() != 2:
        raise ValueError(
            f"there is no kernel {name!r} for a tensor of {matrix.dim()} dimensions; {ROWS} take [rows, columns]"
        )
    function = _kernel_for(name, [matrix])
    if function is None:
        return None
    plain = matrix.resolve_neg().contiguous()
    result = torch.empty(plain.shape[0], dtype=plain.dtype, device="cpu")
    if not has_memory(plain) or not has_memory(result):
        return None
    function(*plain.shape, plain.data_ptr(), result.data_ptr())
    return result


def status() -> str:
    """Describe the code in use: `native (...)`, or `torch formulas (...)` with the reason."""
    native = _native()
    if native.reason:
        return f"torch formulas ({native.reason})"
    return f"native ({'hardware' if native.hardware_fma else 'emulated'} fma)"


def is_native() -> bool:
    """Check whether C code is used, for dtypes and tensors that allow it."""
    return not _native().reason


def bind(library: Library) -> Functions:
    """Return the functions of a compiled elementwise.c or rows.c, by name and dtype. Raises OSError."""
    handle = ctypes.CDLL(str(library.path))
    functions: Functions = {}
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    types: dict[str, list[Any]] = {name: [count, count, pointer, pointer] for name in ROWS}
    for name, (tensors, scalars) in ELEMENTWISE.items():
        types[name] = [count, *[pointer] * tensors, *[ctypes.c_double] * scalars, pointer]
    for name, arguments in types.items():
        for dtype, suffix in SUFFIXES.items():
            if function := getattr(handle, f"numdrift_{name}_{suffix}", None):
                function.argtypes, function.restype = arguments, None
                functions[name, dtype] = function
    return functions


def has_hardware_fma(library: Library) -> bool:
    """Check whether a compiled elementwise.c uses the CPU's own instruction for a * b + c."""
    return bool(ctypes.CDLL(str(library.path)).numdrift_hardware_fma())


@functools.cache
def _native() -> NativeKernels:
    try:
        elements, sums = (compile_library(shipped_source(name)) for name in ("elementwise.c", "rows.c"))
        return NativeKernels(bind(elements) | bind(sums), has_hardware_fma(elements))
    except (NumdriftError, OSError) as error:
        return NativeKernels({}, reason=" ".join(str(error).split()))


def _kernel_for(name: str, tensors: Sequence[torch.Tensor]) -> Callable[..., None] | None:
    # An active tracer would treat the result as a constant.
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return None
    tracer = sys.modules.get("torch.fx.experimental.proxy_tensor")  # not imported unless a tracer was used
    if tracer is not None and tracer.get_proxy_mode() is not None:
        return None
    dtype = tensors[0].dtype
    if not all(tensor.dtype == dtype and has_memory(tensor) for tensor in tensors):
        return None
    return _native().functions.get((name, dtype))


def has_memory(tensor: torch.Tensor) -> bool:
    """Check whether the elements of a tensor can be read at its address, as for an ordinary, dense CPU tensor."""
    try:
        if type(tensor) not in _PLAIN or tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return False
        if not tensor.numel():
            return True
        # the address of a freed storage is 0 plus the tensor's offset
        return bool(tensor.data_ptr() and (not tensor.storage_offset() or tensor.untyped_storage().nbytes()))
    except (RuntimeError, NotImplementedError):
        return False

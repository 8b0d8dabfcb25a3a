"""Whether a kernel can run on this machine."""

from __future__ import annotations

import torch

from numdrift.harness import torch_private
from numdrift.harness.compiler import find_compiler
from numdrift.harness.errors import NotAvailable

from ..native import library
from ..registry import ANY_DEVICE, Kernel
from .arguments import overloads


def why_not(kernel: Kernel) -> str:
    """Why a kernel cannot run here; empty when it can. Raises KernelNotFound for an op that torch does not
    have."""
    known = overloads(kernel.op)
    if kernel.devices != ANY_DEVICE and not any(map(_is_here, kernel.devices)):
        return f"needs a {' or '.join(kernel.devices)} device"
    if kernel.needs_compiler and (missing := _missing_compiler()):
        return missing
    generic = kernel.of_any_op and kernel.name == "decomposed"
    if generic and not any(torch_private.decomposition_of(overload) for overload in known):
        return "torch ships no decomposition"
    return ""


def native_status() -> str:
    """Whether C code or torch formulas serve the native kernels."""
    return library.status()


def _missing_compiler() -> str:
    try:
        find_compiler()
    except NotAvailable as error:
        return error.why
    return ""


def _is_here(device: str) -> bool:
    if device == "cpu":
        return True
    try:
        return bool(torch.get_device_module(device).is_available())
    except (RuntimeError, AttributeError):
        return False

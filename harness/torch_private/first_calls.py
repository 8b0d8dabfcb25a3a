"""Math functions of the CPU, called once before a process of numdrift uses them for its own computations.

If several threads make the first call of such a function at once, one thread's part of the result can have a relative
error of up to 5e-5 (pytorch/pytorch#188792: MKL VML looks for its kernel in the first call, oneMKL 2024.2). These calls
are not made in the process of a training run, so that it computes the same values as without numdrift.
"""

from __future__ import annotations

import functools

import torch

from .dispatching import bare_execution

FUNCTION_NAMES = """
acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 sin sinh sqrt tan
tanh
"""
FUNCTIONS = tuple(FUNCTION_NAMES.split())
"""Torch's names for the functions that ATen leaves to MKL VML where MKL is available (aten/src/ATen/cpu/vml.h), and for
related functions."""


@functools.cache
def settle_first_calls() -> None:
    """Call each function on one element, which a single thread computes, in float32 and float64."""
    with bare_execution(), torch.no_grad():
        for dtype in (torch.float32, torch.float64):
            value = torch.full((1,), 0.5, dtype=dtype)
            for name in FUNCTIONS:
                getattr(torch, name)(value)

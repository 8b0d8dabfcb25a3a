"""The statistics that normalizations save for their backward: their dtype, and whether evaluation saves them.

The CPU and CUDA each have a rule, which compilers follow. Another device may follow either rule, with its own kernels
or the CPU's. On such a device, these functions therefore try the op on an input of one element, once for each kind of
tensor.
"""

from __future__ import annotations

import functools

import torch

from numdrift.harness.torch_private.compiler.compiling import is_traced

from .precision import computing

EMPTY_IN_EVALUATION = ("cpu", "lazy")
"""Devices whose batch norm saves nothing in evaluation."""

SETTLED = (*EMPTY_IN_EVALUATION, "cuda", "xla", "meta")
"""Devices whose rule is known, so that the op is not tried there."""


def statistics_dtype(x: torch.Tensor, *parameters: torch.Tensor | None) -> torch.dtype:
    """Return the dtype of a normalization's statistics.

    On the CPU it is the dtype of the parameters, or of the input if there are no parameters. On CUDA, and while
    tracing, it is the dtype in which ATen computes. Source: ATen/native/cpu/mixed_data_type.h.
    """
    kind = x.device.type
    of_parameters = next((parameter.dtype for parameter in parameters if parameter is not None), None)
    if kind == "cpu":
        return of_parameters or x.dtype
    if kind in SETTLED or is_traced(x):
        return computing(x.dtype)
    return _dtype_on(kind, x.dtype, of_parameters)


def gradient_dtype(x: torch.Tensor, weight: torch.Tensor | None, *others: torch.Tensor | None) -> torch.dtype:
    """Return the dtype of the gradients of a normalization's parameters: that of the weight, or of the statistics if
    there is no weight."""
    return statistics_dtype(x, *others) if weight is None else weight.dtype


def saves_in_evaluation(x: torch.Tensor) -> bool:
    """Check whether batch norm returns its statistics in evaluation."""
    kind = x.device.type
    if kind in SETTLED or is_traced(x):
        return kind not in EMPTY_IN_EVALUATION
    return _saves_on(kind)


@functools.cache
def _dtype_on(kind: str, dtype: torch.dtype, of_parameters: torch.dtype | None) -> torch.dtype:
    weight = None if of_parameters is None else torch.ones(1, dtype=of_parameters, device=kind)
    x = torch.ones((1, 1), dtype=dtype, device=kind)
    mean: torch.Tensor = torch.ops.aten.native_layer_norm(x, [1], weight, weight, 1.0)[1]
    return mean.dtype


@functools.cache
def _saves_on(kind: str) -> bool:
    ones = torch.ones(1, device=kind)
    saved: torch.Tensor = torch.ops.aten.native_batch_norm(ones.view(1, 1), ones, ones, ones, ones, False, 0.0, 1.0)[1]
    return saved.numel() > 0

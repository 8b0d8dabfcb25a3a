"""The generic kernels, which every op has: `aten`, `decomposed`, `fp64` and `inductor`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from numdrift.harness.errors import KernelError, NotAvailable
from numdrift.harness.torch_private.compiler.compiling import compile_alone
from numdrift.harness.torch_private.deferred.deferred_devices import DEFERRED_DEVICES
from numdrift.harness.torch_private.operators import (
    decomposition_of,
    find_overload,
    is_composite,
    is_random,
    written_arguments,
)

from . import fused
from .expectation import Expectations, ExpectedTensor, tensors_in

UNKNOWN_DRAWS = (*DEFERRED_DEVICES, "meta", "mps")
"""Devices that have no generator, or whose torch module cannot return the state of a device's generator."""

_expectations = Expectations()
_WIDER = {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


def aten(op: str, *args: Any, **kwargs: Any) -> Any:
    """Call the op itself."""
    return find_overload(op, args, kwargs)(*args, **kwargs)


def decomposed(op: str, *args: Any, **kwargs: Any) -> Any:
    """Call the decomposition that torch ships, and return results in the op's dtypes.

    Raises NotAvailable if torch ships none."""
    overload = find_overload(op, args, kwargs)
    decomposition = decomposition_of(overload)
    if decomposition is None:
        raise NotAvailable(f"kernel {op}=decomposed", "torch ships no decomposition of this op")
    if is_random(overload):
        return _without_drawing(f"{op}=decomposed", decomposition, args, kwargs)
    if is_composite(overload):
        return decomposition(*args, **kwargs)
    # Some decompositions return statistics in a dtype that differs from the op's (batch norm of bfloat16 with float32
    # weights on a CPU), or statistics that the op leaves out on some devices.
    expected = _expectations.of(overload, args, kwargs)
    result = decomposition(*args, **kwargs)
    if len(expected) != len(list(tensors_in(result))):
        return result
    return _without_left_out(_narrowed(result, expected, (), ()), expected)


def fp64(op: str, *args: Any, **kwargs: Any) -> Any:
    """Call the op on float64 copies, and round the results to the dtypes that the op returns.

    Each argument that the op writes to receives the rounded value of its copy.
    """
    overload = find_overload(op, args, kwargs)
    if is_random(overload):
        return _without_drawing(f"{op}=fp64", functools.partial(_replayed, overload), args, kwargs)
    return _replayed(overload, *args, **kwargs)


def _replayed(overload: Any, *args: Any, **kwargs: Any) -> Any:
    expected = _expectations.of(overload, args, kwargs)
    wide_args, wide_kwargs = (
        [widened(value) for value in args],
        {name: widened(argument) for name, argument in kwargs.items()},
    )
    result = overload(*wide_args, **wide_kwargs)
    for original, wide in written_arguments(overload, args, kwargs, wide_args, wide_kwargs):
        for target, value in zip(tensors_in(original), tensors_in(wide), strict=True):
            target.copy_(_rounded(value, target.dtype))
    return _narrowed(result, expected, args, wide_args)


def _without_left_out(result: Any, expected: Sequence[ExpectedTensor]) -> Any:
    """Return the result with empty tensors where the op returns empty ones."""
    if not isinstance(result, tuple):
        return result
    if len(result) != len(expected) or not all(isinstance(tensor, torch.Tensor) for tensor in result):
        return result
    pairs = zip(result, expected, strict=True)
    return tuple(
        tensor.new_empty(0) if expectation.shape == (0,) and tensor.numel() else tensor for tensor, expectation in pairs
    )


def _without_drawing(kernel: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function. Raises KernelError if it draws random numbers, because the op would draw different ones."""
    devices = {tensor.device for tensor in [*tensors_in(list(args)), *tensors_in(list(kwargs.values()))]}
    others = [device for device in devices if device.type != "cpu"]
    refusal = KernelError(kernel, "cannot replace an op that draws random numbers: it would draw different ones")
    if any(device.type in UNKNOWN_DRAWS for device in others):
        raise refusal
    before = _generator_states(others)
    result = function(*args, **kwargs)
    if not all(map(torch.equal, before, _generator_states(others))):
        torch.set_rng_state(before[0])
        for device, state in zip(others, before[1:], strict=True):
            torch.get_device_module(device).set_rng_state(state, device)
        raise refusal
    return result


def _generator_states(devices: Sequence[torch.device]) -> list[torch.Tensor]:
    """Return the states of the CPU's generator and of the generators of these devices."""
    return [torch.get_rng_state(), *(torch.get_device_module(device).get_rng_state(device) for device in devices)]


def inductor(op: str, *args: Any, **kwargs: Any) -> Any:
    """Call the code that Inductor generates for the single op. Raises the compiler's errors."""
    return _compiled(find_overload(op, args, kwargs))(*args, **kwargs)


@functools.cache
def _compiled(overload: Any) -> Callable[..., Any]:
    return compile_alone(lambda *args, **kwargs: overload(*args, **kwargs))


def widened(value: Any) -> Any:
    """Return copies of a tensor, or of the tensors in a list, in float64 or complex128.

    A floating-point dtype passed as an argument becomes float64; anything else stays unchanged.
    """
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            return value.to(torch.float64, copy=True)
        return value.to(_WIDER.get(value.dtype, value.dtype), copy=True) if value.is_complex() else value
    if isinstance(value, (list, tuple)):
        return type(value)(widened(element) for element in value)
    if isinstance(value, torch.dtype) and value.is_floating_point:
        # With a narrower dtype, the op would round to it, and CUDA's softmax rejects any dtype but its argument's.
        return torch.float64
    return value


def _rounded(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return `value` in `dtype`, rounded once: torch's own cast from float64 to the half formats rounds twice."""
    if value.dtype == torch.float64 and dtype in (torch.bfloat16, torch.float16):
        return fused.rounded(value, torch.zeros_like(value), dtype)
    return value.to(dtype)


def _narrowed(result: Any, expected: Sequence[ExpectedTensor], args: Any, wide_args: Any) -> Any:
    """Return the result in the op's dtypes. Where the op returns one of the copies, return the original argument."""
    originals = {id(wide): original for wide, original in zip(tensors_in(wide_args), tensors_in(args), strict=True)}
    dtypes = {tensor.position: tensor.dtype for tensor in expected}
    positions = itertools.count()

    def narrow(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            narrowed = [narrow(element) for element in value]
            return tuple(narrowed) if isinstance(value, tuple) else narrowed
        position = next(positions)
        if not isinstance(value, torch.Tensor) or id(value) in originals:
            return originals.get(id(value), value)
        # In lazy mode, an op returns a tensor even for a result that `output_mask` excludes; such a tensor is dropped.
        return _rounded(value, dtypes[position]) if position in dtypes else None

    return narrow(result)

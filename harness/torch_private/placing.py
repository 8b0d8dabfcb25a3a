"""Tensors moved to another device while they stay the same objects, and function modes that stay below all
others."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .presence import private


def move_in_place(tensor: torch.Tensor, device: str) -> None:
    """Move a leaf's value and gradient to another device. The tensor stays the same object, with its hooks.

    Raises RuntimeError where torch cannot do it: somebody else holds what is behind the tensor.
    """
    if private("torch._C._functorch", "is_functorch_wrapped_tensor")(tensor):
        raise RuntimeError("it is being transformed by torch.func")
    value = tensor.detach().to(device)
    gradient = tensor.grad
    if torch._has_compatible_shallow_copy_type(tensor, value):
        tensor.data = value
        if gradient is not None:
            tensor.grad = gradient.to(device)
        return
    new = torch.nn.Parameter(value) if isinstance(tensor, torch.nn.Parameter) else value
    hooks, after = tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)
    needs_gradient = tensor.requires_grad
    del value
    if type(new) is not type(tensor):
        new.__class__ = type(tensor)
    torch.utils.swap_tensors(tensor, new)
    tensor.requires_grad_(needs_gradient)
    if gradient is not None:
        tensor.grad = gradient.to(device)
    if hooks:
        tensor._backward_hooks = hooks
    if after:
        tensor._post_accumulate_grad_hooks = after


def enter_below(mode: TorchFunctionMode) -> None:
    """Enter a function mode below those that are on, so that leaving one of them leaves this one on.

    The mode of `torch.set_default_device` has to stay the lowest; that of `with torch.device(...)`, which is
    left by taking out the highest there is, has not."""
    context = private("torch.utils._device", "DeviceContext")
    above = _taken_out()
    if above and isinstance(above[0], context) and hasattr(above[0], "old_device"):
        _push(above.pop(0))
    _push(mode)
    for one in above:
        _push(one)


def take_out(mode: TorchFunctionMode) -> None:
    """Leave a function mode, wherever it is among those that are on."""
    for one in _taken_out():
        if one is not mode:
            _push(one)


def _taken_out() -> list[Any]:
    """Take all function modes out; gives them from the lowest up."""
    count = private("torch._C", "_len_torch_function_stack")
    pop = private("torch.overrides", "_pop_mode")
    return [pop() for _ in range(count())][::-1]


def _push(mode: Any) -> None:
    private("torch.overrides", "_push_mode")(mode)


# Where a rank's part of a DTensor lies, which torch says only in private.


def shard_offset(tensor: Any) -> tuple[int, ...]:
    """The global index of the first element of this rank's part of a DTensor, one number a dimension.

    Computed from shape, mesh and placements; no collective is started.
    """
    compute = private("torch.distributed.tensor._utils", "compute_local_shape_and_global_offset")
    _, offset = compute(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(int(one) for one in offset)

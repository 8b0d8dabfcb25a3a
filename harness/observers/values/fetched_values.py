"""Copies of an accelerator's values on the CPU: in few copies, and without waiting before they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ...torch_private.dispatching import no_dispatch, unseen
from ...torch_private.profiling.device_work import is_accelerator

SMALL = 1 << 20
"""Bytes of the largest tensor that is copied together with others."""

TOGETHER = 1 << 24
"""The most bytes that are copied together."""


def fetching(values: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Begin to copy a tensor to the CPU, and return the function that gives the copy.

    The copy goes to pinned memory while the host continues. If the device cannot do this, the host waits for it here.
    """
    if values.is_cpu:
        return lambda: values
    try:
        device = getattr(torch, values.device.type)
        copied = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
        event, stream = device.Event(), device.current_stream(values.device)
        copied.copy_(values, non_blocking=True)
        event.record(stream)
    except (RuntimeError, AttributeError, TypeError, ValueError):
        waited = values.cpu()
        return lambda: waited

    def wait() -> torch.Tensor:
        event.synchronize()
        return copied

    return wait


def copying(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Begin to copy tensors of one accelerator to the CPU in one copy, and return the function that gives the copies.

    All of them satisfy `is_gathered`. The device needs as much memory again: raises what torch raises if it has none.
    """
    described = [(tensor.dtype, tensor.shape, tensor.nbytes) for tensor in tensors]
    # With the largest elements first, each tensor begins at a multiple of its element's size.
    order = sorted(range(len(tensors)), key=lambda place: -tensors[place].element_size())
    with unseen():
        parts = [tensors[place].detach().reshape(-1).view(torch.uint8) for place in order]
        fetched = fetching(torch.cat(parts) if len(parts) > 1 else parts[0])

    def copies() -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        with unseen():
            for place, part in zip(order, fetched().split([described[place][2] for place in order]), strict=True):
                dtype, shape, _ = described[place]
                found[place] = part.view(dtype).view(shape)
        return [found[place] for place in range(len(described))]

    return copies


def is_gathered(tensor: torch.Tensor) -> bool:
    """Return whether a tensor may be copied together with others: it is small, and its accelerator's own memory."""
    return (
        is_accelerator(tensor.device.type)
        and type(tensor).__torch_dispatch__ is no_dispatch
        and tensor.layout == torch.strided
        and not (tensor.is_quantized or tensor.is_complex() or tensor.is_neg())
        and tensor.nbytes <= min(SMALL, tensor.untyped_storage().nbytes())
    )


def on_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors on the CPU: those that are there as they are, and copies of the others.

    Small tensors of an accelerator are copied together. Raises what a copy raises.
    """
    found = list(tensors)
    groups: list[list[int]] = []
    filling: dict[torch.device, tuple[list[int], int]] = {}  # a group, and the bytes that still fit into it
    for place, tensor in enumerate(tensors):
        if tensor.is_cpu:
            continue
        if not is_gathered(tensor):
            found[place] = tensor.cpu()
            continue
        group, room = filling.get(tensor.device, ([], 0))
        if tensor.nbytes > room or not group:
            group, room = [], TOGETHER
            groups.append(group)
        group.append(place)
        filling[tensor.device] = group, room - tensor.nbytes
    for group in groups:
        originals = [tensors[place] for place in group]
        try:
            copies = copying(originals)()
        except RuntimeError:  # the device has no memory for it
            copies = [tensor.cpu() for tensor in originals]
        for place, copy in zip(group, copies, strict=True):
            found[place] = copy
    return found

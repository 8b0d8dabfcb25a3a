"""Copies of a call's arguments, and the tensors in them."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...torch_private.dispatching import unseen


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of nested containers with their paths, such as `states_0`; no tensor is yielded twice."""
    visited: set[int] = set()

    def within(inner: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
        if isinstance(inner, torch.Tensor):
            if id(inner) not in visited:
                visited.add(id(inner))
                yield path, inner
        elif isinstance(inner, Mapping):
            for key, item in inner.items():
                yield from within(item, _joined(path, key))
        elif isinstance(inner, (list, tuple)):
            fields = getattr(inner, "_fields", range(len(inner)))  # a named tuple has names
            for key, item in zip(fields, inner, strict=True):
                yield from within(item, _joined(path, key))
        elif hasattr(inner, "__dataclass_fields__") and not isinstance(inner, type):
            for key in inner.__dataclass_fields__:
                yield from within(getattr(inner, key, None), _joined(path, key))

    yield from within(value, name)


def _joined(path: str, key: Any) -> str:
    """Return the name of an element; a name is part of a parameter's name, which must not contain a dot."""
    return re.sub(r"\W", "_", f"{path}_{key}" if path else str(key))


def copied(value: Any, device: str = "") -> Any:
    """Return a copy of nested containers in which each tensor is a copy, too, on a `device` if one is named.

    Tensors that share memory share it in the copy as well, and each has the strides of the original:

        x = torch.zeros(4)
        copied((x, x[::2]))     two tensors, the second of which is a view of the first

    A device that defers its ops has no strides. There, tensors that share memory are views of one tensor.
    """
    memory: dict[int, torch.UntypedStorage] = {}
    made: dict[int, torch.Tensor] = {}
    addresses = Counter(_address(original) for _, original in tensors_of(value))
    bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def tensor(original: torch.Tensor) -> torch.Tensor:
        if id(original) not in made:
            if torch.device(device or original.device).type not in DEFERRED_DEVICES:
                made[id(original)] = _copy_of(original, memory, device)
            elif addresses[_address(original)] > 1 and _address(original):
                made[id(original)] = _view_of(original, bases, device)
            else:
                made[id(original)] = original.detach().to(device) if device else original.detach().clone()
            made[id(original)].requires_grad_(original.requires_grad)
        return made[id(original)]

    # What the recorder copies is no call of the script, and no call that fails to repeat.
    with unseen():
        return replaced(value, tensor)


def replaced(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return nested containers with `function` applied to their tensors. Other values stay as they are."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(replaced(item, function) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(replaced(item, function) for item in value)
    if type(value) is dict:
        return {key: replaced(item, function) for key, item in value.items()}
    if isinstance(value, torch.Generator):
        return value
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        shallow = copy.copy(value)
        for key in value.__dataclass_fields__:
            object.__setattr__(shallow, key, replaced(getattr(value, key), function))
        return shallow
    return value


def _address(tensor: torch.Tensor) -> int:
    """Return where the memory begins that a tensor is a plain view of; 0 if there is none.

    There is none of a tensor that is sparse, quantized, a subclass, or on a device that defers its ops.
    """
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    if not is_plain or tensor.device.type in DEFERRED_DEVICES or tensor.is_quantized or tensor.is_neg():
        return 0
    return tensor.untyped_storage().data_ptr()


def _copy_of(original: torch.Tensor, memory: dict[int, torch.UntypedStorage], device: str) -> torch.Tensor:
    """Return a copy of a tensor, in a copy of its memory: `memory` has the copies that exist, by original address."""
    address, goes_to = _address(original), torch.device(device or original.device)
    if not address:
        return original.detach().clone() if goes_to == original.device else original.detach().to(goes_to)
    if address not in memory:
        whole = torch.empty(0, dtype=torch.uint8, device=original.device).set_(original.untyped_storage())
        memory[address] = whole.to(goes_to, copy=True).untyped_storage()
    result = torch.empty(0, dtype=original.dtype, device=goes_to)
    result.set_(memory[address], original.storage_offset(), original.shape, original.stride())
    return result.conj() if original.is_conj() else result


def _view_of(original: torch.Tensor, bases: dict[tuple[int, torch.dtype], torch.Tensor], device: str) -> torch.Tensor:
    """Return a view of a tensor on a device that holds the memory of the original; `bases` has those that exist."""
    key = _address(original), original.dtype
    if key not in bases:
        storage = original.untyped_storage()
        whole = torch.empty(0, dtype=original.dtype).set_(storage, 0, (storage.nbytes() // original.itemsize,), (1,))
        bases[key] = whole.to(device, copy=True)
    with torch.enable_grad():  # a call may not write a result with a gradient into a view that is made without this
        result = bases[key].as_strided(original.shape, original.stride(), original.storage_offset()).detach()
    result.cpu()  # executes the view, so that the device's graph of the call begins after it
    return result.conj() if original.is_conj() else result

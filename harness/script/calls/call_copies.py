"""Copies of a call's arguments, and the tensors in them."""

from __future__ import annotations

import copy
import re
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


def copied(value: Any) -> Any:
    """Return a copy of nested containers in which each tensor is a copy, too.

    Tensors that share memory share it in the copy as well, and each has the strides of the original:

        x = torch.zeros(4)
        copied((x, x[::2]))     two tensors, the second of which is a view of the first
    """
    memory: dict[int, torch.UntypedStorage] = {}
    made: dict[int, torch.Tensor] = {}

    def tensor(original: torch.Tensor) -> torch.Tensor:
        if id(original) not in made:
            made[id(original)] = _copy_of(original, memory)
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


def _copy_of(original: torch.Tensor, memory: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """Return a copy of a tensor, in a copy of its memory: `memory` has the copies that exist, by original address.

    A tensor that is not a plain view of memory (sparse, quantized, a subclass) is cloned.
    """
    is_plain = type(original) in (torch.Tensor, torch.nn.Parameter) and original.layout == torch.strided
    if not is_plain or original.device.type in DEFERRED_DEVICES or original.is_quantized or original.is_neg():
        result = original.detach().clone()
    else:
        storage = original.untyped_storage()
        if storage.data_ptr() not in memory or not storage.data_ptr():
            memory[storage.data_ptr()] = storage.clone()
        result = torch.empty(0, dtype=original.dtype, device=original.device)
        result.set_(memory[storage.data_ptr()], original.storage_offset(), original.shape, original.stride())
        if original.is_conj():
            result = result.conj()
    return result.requires_grad_(original.requires_grad)

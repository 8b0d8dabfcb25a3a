"""The levels of torch.func's transformations: how many are on, and the tensors beneath their wrappers."""

from __future__ import annotations

from typing import Any

import torch

_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)


def transformation_level() -> int:
    """How many transformations (grad, vmap, jvp) are being executed; 0 outside of all, and where torch cannot
    tell."""
    current = getattr(_FUNCTORCH, "maybe_current_level", None)
    return 0 if current is None else current() or 0


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a transformation has put the tensor into a wrapper of its own."""
    asked = getattr(_FUNCTORCH, "is_functorch_wrapped_tensor", None)
    return asked is not None and bool(asked(tensor))


def unwrapped(tensor: torch.Tensor) -> torch.Tensor | None:
    """The script's tensor beneath all wrappers of gradients; None where one of them is vmap's, which holds
    many."""
    batched = getattr(_FUNCTORCH, "is_batchedtensor", None)
    inner = getattr(_FUNCTORCH, "get_unwrapped", None)
    while is_wrapped(tensor):
        if batched is None or inner is None or batched(tensor):
            return None
        tensor = inner(tensor)
    return tensor

"""Functions of numdrift that a script's own compiled function may call: dynamo leaves them to Python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import torch

from ..errors import NotAvailable
from .presence import private

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Return a function that dynamo never traces, including its calls: a graph breaks there.

    It does not load dynamo, which takes seconds: while dynamo is not loaded, nothing is traced.
    """
    hidden: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal hidden
        if hidden is None:
            if "torch._dynamo" not in sys.modules:
                return function(*args, **kwargs)
            hidden = torch.compiler.disable(lambda *args, **kwargs: function(*args, **kwargs))
        return hidden(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    skip_frame(call)
    return call  # type: ignore[return-value]


def skip_frame(function: Callable[..., Any]) -> None:
    """Have dynamo trace the calls in the function but not the function itself, once dynamo is loaded."""
    if "torch._dynamo" in sys.modules:
        with suppress(NotAvailable):  # it then compiles a frame of numdrift for nothing
            private("torch._dynamo.decorators", "skip")(function)


def forget_known_functions() -> None:
    """Make dynamo look up again which functions it knows, and how it handles each of them.

    If a function was replaced when dynamo looked, dynamo knows the replacement, and traces the function itself like
    any other.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    functions = getattr(sys.modules.get("torch._dynamo.variables.torch"), "TorchInGraphFunctionVariable", None)
    handlers = getattr(functions, "_get_handlers", None)
    for clear in (getattr(rules, "clear_lru_cache", None), getattr(handlers, "cache_clear", None)):
        if clear is not None:
            clear()


# The levels of torch.func's transformations: the number of active ones, and the tensors beneath their wrappers.

_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)


def transformation_level() -> int:
    """The number of active transformations (grad, vmap, jvp); 0 outside of all, and if torch does not report it."""
    current = getattr(_FUNCTORCH, "maybe_current_level", None)
    return 0 if current is None else current() or 0


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a transformation has put the tensor into a wrapper of its own."""
    is_wrapper = getattr(_FUNCTORCH, "is_functorch_wrapped_tensor", None)
    return is_wrapper is not None and bool(is_wrapper(tensor))


def unwrapped(tensor: torch.Tensor) -> torch.Tensor | None:
    """The script's tensor beneath all wrappers of gradients; None if one of them is vmap's, which holds many."""
    batched = getattr(_FUNCTORCH, "is_batchedtensor", None)
    inner = getattr(_FUNCTORCH, "get_unwrapped", None)
    while is_wrapped(tensor):
        if batched is None or inner is None or batched(tensor):
            return None
        tensor = inner(tensor)
    return tensor

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
    """Wrap a function so that dynamo traces neither it nor the functions that it calls: the graph breaks at its call.

    Outside of compiled functions, where dynamo traces nothing, the function is called as it is. This does not load
    dynamo, which would take seconds.
    """
    hidden: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal hidden
        if not _may_trace():
            return function(*args, **kwargs)
        if hidden is None:
            hidden = torch.compiler.disable(lambda *args, **kwargs: function(*args, **kwargs))
        return hidden(*args, **kwargs)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    skip_frame(call)
    return call  # type: ignore[return-value]


def _may_trace() -> bool:
    """Return whether dynamo may trace a Python function that this thread calls; True if torch does not report it."""
    if "torch._dynamo" not in sys.modules:
        return False
    callback = getattr(getattr(torch._C._dynamo, "eval_frame", None), "get_eval_frame_callback", None)
    return callback is None or callback() is not None


def skip_frame(function: Callable[..., Any]) -> None:
    """Make dynamo, once it is loaded, trace the calls in a function but not the function itself."""
    if "torch._dynamo" in sys.modules:
        with suppress(NotAvailable):  # without `skip`, dynamo compiles a frame of numdrift for nothing
            private("torch._dynamo.decorators", "skip")(function)


def forget_known_functions() -> None:
    """Make dynamo look up again which functions it knows, and how it handles each of them.

    If a function was replaced while dynamo looked it up, dynamo knows the replacement instead, and traces the original
    like any other function.
    """
    rules = sys.modules.get("torch._dynamo.trace_rules")
    functions = getattr(sys.modules.get("torch._dynamo.variables.torch"), "TorchInGraphFunctionVariable", None)
    handlers = getattr(functions, "_get_handlers", None)
    for clear in (getattr(rules, "clear_lru_cache", None), getattr(handlers, "cache_clear", None)):
        if clear is not None:
            clear()


# The transformations of torch.func: the number of active ones, and the tensors beneath their wrappers.

_FUNCTORCH: Any = getattr(torch._C, "_functorch", None)


def transformation_level() -> int:
    """Return the number of active transformations (grad, vmap, jvp); 0 if torch does not report it."""
    current = getattr(_FUNCTORCH, "maybe_current_level", None)
    return 0 if current is None else current() or 0


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a transformation has wrapped the tensor."""
    is_wrapper = getattr(_FUNCTORCH, "is_functorch_wrapped_tensor", None)
    return is_wrapper is not None and bool(is_wrapper(tensor))


def unwrapped(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the script's tensor beneath all wrappers; None if a wrapper is vmap's, which holds many tensors."""
    batched = getattr(_FUNCTORCH, "is_batchedtensor", None)
    inner = getattr(_FUNCTORCH, "get_unwrapped", None)
    while is_wrapped(tensor):
        if batched is None or inner is None or batched(tensor):
            return None
        tensor = inner(tensor)
    return tensor

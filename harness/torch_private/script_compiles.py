"""What a script's own calls of torch.compile have made, and what dynamo has counted of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .compiling import WRAPPED, is_compiled_in_place
from .patches import Undo, wrapped
from .presence import private

COMPILED_FROM = "_torchdynamo_orig_callable"
"""The attribute by which dynamo's wrapper around a function holds the function."""


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """Where dynamo ended a graph before its function did: the reason's first line, and the innermost
    `file:line`."""

    reason: str
    source: str


def around_compile_calls(owner: str, around: Callable[[Callable[[], Any]], Any]) -> Undo:
    """Have `around` do each call of `torch.compile`: it gives what the call of its argument gives; gives the undo."""

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_(*args: Any, **kwargs: Any) -> Any:
            return around(lambda: original(*args, **kwargs))

        return compile_

    return wrapped(owner, torch, "compile", watched)


def eager_wrapper(module: torch.nn.Module) -> torch.nn.Module:
    """What `torch.compile(module)` returns, running the module eagerly: its names, its `_orig_mod` and its
    class are those that the script relies on."""
    wrapper_type = private("torch._dynamo.eval_frame", "OptimizedModule")
    disabled = private("torch._dynamo.eval_frame", "DisableContext")
    wrapper: torch.nn.Module = wrapper_type(module, disabled())
    object.__setattr__(wrapper, COMPILED_FROM, module)
    return wrapper


def is_compiled_by_script(module: torch.nn.Module) -> bool:
    """Whether calls of the module go through a compiler already, by `torch.compile(model)`, `model.compile()`
    or a compiled `forward`."""
    return (
        isinstance(module.__dict__.get("_modules", {}).get(WRAPPED), torch.nn.Module)
        or is_compiled_in_place(module)
        or hasattr(module.forward, COMPILED_FROM)
    )


def inductor_mode_options(mode: str, dynamic: bool | None) -> Mapping[str, Any]:
    """The options of Inductor's that `mode="max-autotune"` and the like stand for."""
    found: Mapping[str, Any] = private("torch._inductor", "list_mode_options")(mode, dynamic)
    return found


def compiled_regions() -> int:
    """How many graphs dynamo has handed to a backend in this process."""
    if "torch._dynamo.utils" not in sys.modules:
        return 0
    return int(private("torch._dynamo.utils", "counters")["stats"]["unique_graphs"])


def graph_breaks() -> list[GraphBreak]:
    """The graph breaks of this process, in the order in which dynamo came to them, without those at our
    hooks."""
    if "torch._dynamo.utils" not in sys.modules:
        return []
    reasons = private("torch._dynamo.utils", "graph_break_reasons")
    return [
        _graph_break(one) for one in reasons if getattr(one, "graph_break", True) and "numdrift" not in str(one.reason)
    ]


def _graph_break(reason: Any) -> GraphBreak:
    lines = [line.strip() for line in str(reason.reason).splitlines() if line.strip()]
    stack = list(getattr(reason, "user_stack", None) or [])
    source = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else ""
    return GraphBreak(lines[0] if lines else "", source)

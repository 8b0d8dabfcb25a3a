"""What torch.compile has made in this process, for the script and for the mode, and what it counts of it."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .compiling import WRAPPED, is_compiled_in_place
from .graph_stages import generated_module
from .patches import Undo, wrapped
from .presence import private, require

OF_COMPILERS = ("inductor", "numdrift")
"""Namespaces of ops that no script calls."""

_KERNEL = re.compile(
    r"\btorch\.ops\.(\w+)\.(\w+)\.(\w+)\("
    r"|^[ \t]*(aten)\.(scatter_|scatter_reduce_|index_put_|bernoulli_)(?:\.(\w+))?\(",
    re.MULTILINE,
)
"""The call of an op in a generated module: by its full name, or in place, of an op that has a class of
Inductor's IR."""


def watch_compilations(began: Callable[[str, bool], None], ended: Callable[[], None]) -> Undo:
    """Have `began(number, is_backward)` and `ended()` called around each outermost compilation, dynamo's
    tracing included.

    Neither may raise. A compilation within another is a part of it.
    """
    handler = private("torch._dynamo.callback", "callback_handler")
    trigger = private("torch._dynamo.callback", "CallbackTrigger")

    def start(arguments: Any) -> None:
        began(str(arguments.compile_id), arguments.callback_trigger is trigger.LAZY_BACKWARD)

    def end(arguments: Any) -> None:
        ended()

    handler.register_start_callback(start)
    handler.register_end_callback(end)

    def undo() -> None:
        handler.remove_start_callback(start)
        handler.remove_end_callback(end)

    return undo


def recompile_reason() -> str:
    """Why the function that dynamo compiles now is compiled again: the guard that did not hold, "" for a first time.

    Raises NotAvailable.
    """
    context = private("torch._dynamo.utils", "get_metrics_context")()
    require(context, "_metrics")
    # `0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4`, or with a comment behind it and a stack below
    lines = str(context._metrics.get("recompile_reason") or "").splitlines()
    text = lines[0].partition("  #")[0].strip() if lines else ""
    return re.sub(r"^\d+/\d+: ", "", text)


def compiler_counters() -> Mapping[str, int]:
    """What dynamo, AOTAutograd and Inductor have counted since the process began, as
    `inductor.fxgraph_cache_hit`."""
    counted = private("torch._dynamo.utils", "counters")
    return {
        f"{part}.{name}": int(value)
        for part, counters in list(counted.items())
        for name, value in list(counters.items())
        if isinstance(value, int)
    }


def compile_times() -> str:
    """torch's own table of what took how long while it compiled."""
    return str(private("torch._dynamo.utils", "compile_times")("str"))


def kernels_of_torch(compiled: Any) -> list[str]:
    """The ops of a graph that Inductor has no kernel of its own for, and calls torch's, as
    `aten::sort.stable`: one for each call, in the order of the calls."""
    # A match fills the groups of one of the two forms: `aten.sort.stable` gives (aten, sort, stable).
    found = (tuple(filter(None, parts)) for parts in _KERNEL.findall(generated_module(compiled)))
    return [
        f"{space}::{name}" + "".join(f".{one}" for one in overload if one != "default")
        for space, name, *overload in found
        if space not in OF_COMPILERS
    ]


def is_backward(compiled: Any) -> bool:
    """Whether a graph of Inductor's is that of a backward."""
    return bool((getattr(compiled, "fx_kwargs", None) or {}).get("is_backward"))


# What a script's own calls of torch.compile have made, and what dynamo has counted of it.

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
    found = []
    for one in private("torch._dynamo.utils", "graph_break_reasons"):
        if getattr(one, "graph_break", True) and "numdrift" not in str(one.reason):
            lines = [line.strip() for line in str(one.reason).splitlines() if line.strip()]
            stack = list(getattr(one, "user_stack", None) or [])
            source = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else ""
            found.append(GraphBreak(lines[0] if lines else "", source))
    return found


def refusals() -> list[str]:
    """Why dynamo has left whole functions to eager mode in this process, its first line and its explanation each."""
    if "torch._dynamo.utils" not in sys.modules:
        return []
    found = []
    for text in private("torch._dynamo.utils", "counters")["unimplemented"]:
        lines = [line.strip() for line in str(text).splitlines() if line.strip()]
        explained = [line.partition(":")[2].strip() for line in lines if line.startswith("Explanation:")]
        found.append(": ".join([*lines[:1], *explained]).rstrip("."))
    return found

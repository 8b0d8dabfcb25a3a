"""What torch.compile tells of its compilations, and what it counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .graph_stages import generated_module
from .patches import Undo
from .presence import private

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
    found = (tuple(filter(None, parts)) for parts in _KERNEL.findall(generated_module(compiled)))
    return [
        f"{space}::{name}" + "".join(f".{one}" for one in overload if one != "default")
        for space, name, *overload in found
        if space not in OF_COMPILERS
    ]


def is_backward(compiled: Any) -> bool:
    """Whether a graph of Inductor's is that of a backward."""
    return bool((getattr(compiled, "fx_kwargs", None) or {}).get("is_backward"))

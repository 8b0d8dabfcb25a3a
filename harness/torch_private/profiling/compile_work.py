"""The compilations of torch.compile in this process, by the script and by the mode, and dynamo's counts of them."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..compiler.compiling import WRAPPED, is_compiled_in_place
from ..compiler.graph_stages import generated_module
from ..patches import Undo, wrapped
from ..presence import private, require

OF_COMPILERS = ("inductor", "numdrift")
"""Namespaces of ops that no script calls."""

_KERNEL = re.compile(
    r"\btorch\.ops\.(\w+)\.(\w+)\.(\w+)\("
    r"|^[ \t]*(aten)\.(scatter_|scatter_reduce_|index_put_|bernoulli_)(?:\.(\w+))?\(",
    re.MULTILINE,
)
"""A call of an op in a generated module: by its full name, or in place if the op has a class in Inductor's IR."""


def watch_compilations(began: Callable[[str, bool], None], ended: Callable[[], None]) -> Undo:
    """Call `began(number, is_backward)` and `ended()` around each outermost compilation, including dynamo's tracing.

    Neither function may raise. A nested compilation counts as part of the outer one.
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
    """Return the failed guard that makes dynamo compile the current function again, "" for a first compilation.

    Raises NotAvailable.
    """
    context = private("torch._dynamo.utils", "get_metrics_context")()
    require(context, "_metrics")
    # The text is `0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4`. A comment may follow on the line,
    # and a stack on the next lines.
    lines = str(context._metrics.get("recompile_reason") or "").splitlines()
    text = lines[0].partition("  #")[0].strip() if lines else ""
    return re.sub(r"^\d+/\d+: ", "", text)


def compiler_counters() -> Mapping[str, int]:
    """Return the counters of dynamo, AOTAutograd and Inductor, such as `inductor.fxgraph_cache_hit`.

    They count from the start of the process.
    """
    counted = private("torch._dynamo.utils", "counters")
    return {
        f"{part}.{name}": int(value)
        for part, counters in list(counted.items())
        for name, value in list(counters.items())
        if isinstance(value, int)
    }


def compile_times() -> str:
    """Return torch's own table of the time that each part of compilation took."""
    return str(private("torch._dynamo.utils", "compile_times")("str"))


def kernels_of_torch(compiled: Any) -> list[str]:
    """Return the ops of a graph for which Inductor calls torch's kernels, such as `aten::sort.stable`.

    There is one entry for each call, in the order of the calls.
    """
    # A match fills the groups of one of the two forms: `aten.sort.stable` becomes (aten, sort, stable).
    calls = (tuple(filter(None, parts)) for parts in _KERNEL.findall(generated_module(compiled)))
    return [
        f"{space}::{name}" + "".join(f".{part}" for part in overload if part != "default")
        for space, name, *overload in calls
        if space not in OF_COMPILERS
    ]


def is_backward(compiled: Any) -> bool:
    """Return whether a graph compiled by Inductor is a backward."""
    return bool((getattr(compiled, "fx_kwargs", None) or {}).get("is_backward"))


# The results of a script's own calls of torch.compile, and dynamo's counts of them.

COMPILED_FROM = "_torchdynamo_orig_callable"
"""The attribute under which dynamo's wrapper of a function keeps the function."""


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A break that ended a graph before its function's end: the reason's first line, and the innermost `file:line`."""

    reason: str
    source: str


def around_compile_calls(owner: str, around: Callable[[Callable[[], Any]], Any]) -> Undo:
    """Make `around` perform each call of `torch.compile`; return the undo.

    `around` calls its argument, and returns the result.
    """

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_(*args: Any, **kwargs: Any) -> Any:
            return around(lambda: original(*args, **kwargs))

        return compile_

    return wrapped(owner, torch, "compile", watched)


def eager_wrapper(module: torch.nn.Module) -> torch.nn.Module:
    """Return a wrapper like the one that `torch.compile(module)` returns, except that it runs the module eagerly.

    It has the parameter names, the attribute `_orig_mod` and the class on which scripts rely.
    """
    wrapper_type = private("torch._dynamo.eval_frame", "OptimizedModule")
    disabled = private("torch._dynamo.eval_frame", "DisableContext")
    wrapper: torch.nn.Module = wrapper_type(module, disabled())
    object.__setattr__(wrapper, COMPILED_FROM, module)
    return wrapper


def is_compiled_by_script(module: torch.nn.Module) -> bool:
    """Return whether calls of the module already go through a compiler.

    `torch.compile(model)`, `model.compile()` and a compiled `forward` count.
    """
    return (
        isinstance(module.__dict__.get("_modules", {}).get(WRAPPED), torch.nn.Module)
        or is_compiled_in_place(module)
        or hasattr(module.forward, COMPILED_FROM)
    )


def inductor_mode_options(mode: str, dynamic: bool | None) -> Mapping[str, Any]:
    """Return the options of Inductor that a mode such as `mode="max-autotune"` selects."""
    options: Mapping[str, Any] = private("torch._inductor", "list_mode_options")(mode, dynamic)
    return options


def compiled_regions() -> int:
    """Return the number of graphs that dynamo has handed to a backend in this process."""
    if "torch._dynamo.utils" not in sys.modules:
        return 0
    return int(private("torch._dynamo.utils", "counters")["stats"]["unique_graphs"])


def graph_breaks() -> list[GraphBreak]:
    """Return the graph breaks of this process in dynamo's order, without those at numdrift's hooks."""
    if "torch._dynamo.utils" not in sys.modules:
        return []
    breaks = []
    for recorded in private("torch._dynamo.utils", "graph_break_reasons"):
        if getattr(recorded, "graph_break", True) and "numdrift" not in str(recorded.reason):
            lines = [line.strip() for line in str(recorded.reason).splitlines() if line.strip()]
            stack = list(getattr(recorded, "user_stack", None) or [])
            source = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else ""
            breaks.append(GraphBreak(lines[0] if lines else "", source))
    return breaks


def refusals() -> list[str]:
    """Return the reasons why dynamo left whole functions to eager mode: the first line and explanations of each.

    Dynamo counts a break where it occurs and again where it ends the function, with one more explanation. Only the
    longer reason is returned.
    """
    if "torch._dynamo.utils" not in sys.modules:
        return []
    reasons = []
    for text in private("torch._dynamo.utils", "counters")["unimplemented"]:
        lines = [line.strip() for line in str(text).splitlines() if line.strip()]
        explained = [line.partition(":")[2].strip() for line in lines if line.startswith("Explanation:")]
        reasons.append(": ".join(part.rstrip(".") for part in (*lines[:1], *explained)))
    distinct = list(dict.fromkeys(reasons))
    return [
        reason for reason in distinct if not any(longer != reason and longer.startswith(reason) for longer in distinct)
    ]

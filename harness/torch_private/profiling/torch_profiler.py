"""The parts of torch that numdrift's profiler uses besides `torch.profiler`.

With them, the profiler observes the lazy core's executions, Inductor's kernels by name, the script's lines, and the
script's own profilers. Verified on torch 2.13.0.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from ..deferred.lazy import lazy_counters
from ..patches import Patches, Undo, lifted, wrapped
from ..presence import private, require
from .compile_work import compiled_regions
from .device_work import device_activity

LAZY_CUTS = ("_mark_step", "_sync_multi")
XLA_CUTS = ("_xla_step_marker", "_xla_sync_multi")
"""The functions that execute the pending graph: at a mark_step, and when tensors are needed."""

LOG_LEVEL = "KINETO_LOG_LEVEL"
ENTERED = "_numdrift_taken"
WITHIN = "_numdrift_kernel"
"""The attribute under which a wrapper of a kernel keeps the kernel."""


def around_cuts(device: str, around: Callable[[], AbstractContextManager[object]]) -> Undo:
    """Run every call that cuts and executes the pending graph of lazy tensors within a context of `around`."""
    module, names = ("_XLAC", XLA_CUTS) if device == "xla" else ("torch._C._lazy", LAZY_CUTS)
    holder = importlib.import_module(module)

    def within(cut: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(cut)
        def call(*args: Any, **kwargs: Any) -> Any:
            with around():
                return cut(*args, **kwargs)

        return call

    with Patches("the cuts of a profile") as patches:
        for name in names:
            if hasattr(holder, name):
                patches.wrap(holder, name, within)
    return patches.undo


def name_inductor_kernels(named: Callable[[str], Callable[[], Any]]) -> Undo:
    """Run each call of a generated C++ kernel within a range that `named(kernel)` begins.

    `named(kernel)` returns a function that begins the range and returns its handle. The generated code and its caches
    stay the same, while `cpp.enable_kernel_profile` would compile every kernel again. The profiler already shows Triton
    kernels.
    """
    cache = private("torch._inductor.codecache", "PyCodeCache")
    require(cache, "load_by_key_path")

    def shown(kernel: Callable[..., Any], begin: Callable[[], Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            handle = begin()
            try:
                return kernel(*args)
            finally:
                if handle is not None:
                    handle.__exit__(None, None, None)

        setattr(call, WITHIN, kernel)
        return call

    def naming(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(*args: Any, **kwargs: Any) -> Any:
            module = original(*args, **kwargs)
            for name, kernel in list(vars(module).items()):
                # Torch may return the same module several times, so a kernel that is already wrapped is left alone.
                if name.startswith("cpp_") and callable(kernel) and not hasattr(kernel, WITHIN):
                    setattr(module, name, shown(kernel, named(name)))
            return module

        return load

    return wrapped("the names of Inductor's kernels", cache, "load_by_key_path", naming)


def compilations(device: str, *, compiles: bool) -> int | None:
    """Return the number of graphs compiled in this process so far; None if they are not counted."""
    if compiles:
        return compiled_regions()
    if device == "lazy":
        return lazy_counters().get("UncachedCompile", 0)
    return None


def profiler_runs() -> bool:
    """Return whether a torch profiler is active on this thread."""
    return bool(private("torch.autograd", "_profiler_enabled")())


def watch_profilers(begins: Callable[[Any], None]) -> Undo:
    """Call `begins` before a `torch.autograd.profiler.profile` begins; two profilers cannot run at the same time."""
    holder = private("torch.autograd.profiler", "profile")
    require(holder, "_prepare_trace")

    def watched(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def prepare(profiler: Any) -> Any:
            begins(profiler)
            return original(profiler)

        return prepare

    return wrapped("the script's own profilers", holder, "_prepare_trace", watched)


class OpenRange:
    """A range of the trace, which begins when the object is created."""

    def __init__(self, name: str) -> None:
        self._record = torch.ops.profiler._record_function_enter_new(name, None)

    def __exit__(self, *_: object) -> None:
        with torch._C.DisableTorchFunctionSubclass():
            torch.ops.profiler._record_function_exit._RecordFunction(self._record)


def watch_ranges(enter: Callable[[str], bool], leave: Callable[[str], None]) -> Undo:
    """Pass the name of every `record_function` of the script and of torch's Python code to `enter` and `leave`.

    If `enter` returns true, the `record_function` begins no range itself. A range that begins in one trace and ends in
    the next one writes into memory that torch has freed (2.13).
    """
    holder = private("torch.autograd.profiler", "record_function")

    def entering(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def entered(self: Any) -> Any:
            if not enter(self.name):
                return original(self)
            vars(self)[ENTERED] = True
            return self

        return entered

    def leaving(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def left(self: Any, *error: Any) -> Any:
            return leave(self.name) if vars(self).pop(ENTERED, False) else original(self, *error)

        return left

    with Patches("the ranges of a profile") as patches:
        patches.wrap(holder, "__enter__", entering)
        patches.wrap(holder, "__exit__", leaving)
    return patches.undo


def open_ranges(trace: bytes) -> bool:
    """Return whether an event was still open when the trace ended."""
    unfinished = re.finditer(rb'"finished": false', trace)
    # An allocation of memory is an instant and never ends; all other events end.
    return any(b'"Total Allocated"' not in _arguments(trace, match.start()) for match in unfinished)


def _arguments(trace: bytes, place: int) -> bytes:
    """Return the arguments of the event around this place."""
    return trace[trace.rfind(b"{", 0, place) : trace.find(b"}", place)]


def own_module_calls() -> AbstractContextManager[None]:
    """Restore torch's own `Module.__call__` within the context.

    The first trace `with_stack` reads `Module.__call__` to recognise the calls of modules: torch takes the `self` of
    that function for a module.
    """
    return lifted(torch.nn.Module, "__call__")


@contextmanager
def without_profiler_messages() -> Iterator[None]:
    """Silence the messages of torch's profiler and of Kineto, its library, on standard error.

    Kineto reads its log level when it is first used, and torch warns once.
    """
    former_level = os.environ.get(LOG_LEVEL)
    os.environ.setdefault(LOG_LEVEL, "99")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        if former_level is None:
            os.environ.pop(LOG_LEVEL, None)


def traced_activities(device: str) -> list[Any]:
    """Return the activity of the CPU, and that of the device if torch's profiler knows it."""
    of_device = device_activity(device)
    return [torch.profiler.ProfilerActivity.CPU, *([] if of_device is None else [of_device])]


def lines_of_ops(profile: Any, lies_in_script: Callable[[str], bool]) -> dict[int, str]:
    """Return the line of the script from which each outermost op was called, as `file:line` by the op's External id.

    `profile` is a `torch.profiler.profile` that was made `with_stack` and has ended. The slices of Python functions in
    a trace name the line where a function is defined; only the profiler's tree has the line that called the function.
    """
    # Walk the tree from its roots; a child starts with the line that was found above it.
    results = profile.profiler.kineto_results
    require(results, "experimental_event_tree")
    lines: dict[int, str] = {}
    waiting = [(event, "") for event in results.experimental_event_tree()]
    while waiting:
        event, line = waiting.pop()
        tag, fields = event.typed
        caller = getattr(fields, "caller", None)
        if caller is not None:  # a Python function with its caller's line; the script's innermost line counts
            if lies_in_script(caller.file_name):
                line = f"{caller.file_name}:{caller.line_number}"
        elif tag.name == "TorchOp" and fields.scope.name != "USER_SCOPE":
            if line:
                lines[int(event.correlation_id)] = line
            continue
        waiting += [(child, line) for child in event.children]
    return lines

"""numdrift's interface to torch_xla, mostly through private names (written with torch_xla 2.9)."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ...errors import UsageError
from ..patches import Patches, Undo, wrapped
from ..presence import private
from ..registered_kernels import Overrides, original_kernel

CORE = "_XLAC"
"""torch_xla's native module."""

PLATFORM = "PJRT_DEVICE"
FLAGS = "XLA_FLAGS"


def note_xla_locations() -> Undo:
    """Make each new node record the innermost Python frame that creates it; return the undo."""
    before, note = private(CORE, "_get_ir_debug")(), private(CORE, "_set_ir_debug")
    note(True)
    return lambda: note(before)


def start_xla(modules: Path | None = None) -> None:
    """Import torch_xla and start its runtime, on the CPU unless the environment names another platform.

    `modules` is a folder for the text of the modules that XLA compiles. Raises NotAvailable if torch_xla cannot be
    imported, UsageError for a platform that is not available.
    """
    os.environ.setdefault(PLATFORM, "CPU")
    if modules is not None:
        flags = os.environ.get(FLAGS, "")
        os.environ[FLAGS] = f"{flags} --xla_dump_to={modules} --xla_dump_hlo_as_text".strip()
    handlers = list(logging.root.handlers)
    device: Callable[[], Any] = private("torch_xla", "device")
    # Importing torch_xla sets up Python's logging, and the script's `basicConfig` would then do nothing.
    for handler in set(logging.root.handlers) - set(handlers):
        logging.root.removeHandler(handler)
    try:
        device()
    except (RuntimeError, OSError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0]
        raise UsageError(
            f"{PLATFORM}={os.environ[PLATFORM]} is not a platform that torch_xla finds here ({reason}); unset "
            f"{PLATFORM}, or add env.{PLATFORM}=CPU to the mode"
        ) from error


def execute_pending() -> None:
    """Compile and execute everything that is pending, and wait until the values are available.

    This is torch_xla's mark_step without the closures that a script has deferred to its next mark_step. It also works
    within a block that the script has named (`xp.Trace`), where torch_xla's mark_step raises.
    """
    default = private(CORE, "_xla_get_default_device")()
    private(CORE, "_xla_step_marker")(default, [], wait=True, reset_scope=False)


def show_xla_blocks() -> Undo:
    """Show torch's profiler the blocks that a script names with `xp.Trace` and `xp.StepTrace`; return the undo.

    Raises NotAvailable.
    """
    named: Any = private("torch_xla.debug.profiler", "Trace")
    ranges: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def entering(enter: Callable[..., Any]) -> Callable[..., Any]:
        def entered(block: Any) -> Any:
            entered_block = enter(block)
            shown = ranges[block] = torch.autograd.profiler.record_function(block.name)
            shown.__enter__()
            return entered_block

        return entered

    def leaving(leave: Callable[..., Any]) -> Callable[..., Any]:
        def left(block: Any, *raised: object) -> Any:
            if block in ranges:
                ranges.pop(block).__exit__(None, None, None)
            return leave(block, *raised)

        return left

    with Patches("the blocks of torch_xla's profiler") as patches:
        patches.wrap(named, "__enter__", entering)
        patches.wrap(named, "__exit__", leaving)
    return patches.undo


def around_step_marker(around: Callable[[Callable[[], None]], None]) -> Undo:
    """Route each call that executes all pending work through `around`, which receives the executing function.

    The calls are those of `mark_step`, `torch_xla.sync`, `optimizer_step(barrier=True)`, `torch_xla.step` and data
    loaders. Returns the undo. Raises NotAvailable.
    """
    core: Any = importlib.import_module(CORE)
    private(CORE, "_xla_step_marker")

    def wrapping(mark: Callable[..., None]) -> Callable[..., None]:
        def marked(*args: Any, **kwargs: Any) -> None:
            around(lambda: mark(*args, **kwargs))

        return marked

    return wrapped("the xla mode", core, "_xla_step_marker", wrapping)


def sync_xla(tensors: Sequence[torch.Tensor]) -> None:
    """Execute the pending work of these xla tensors, and with it everything else that is pending.

    If only the work of these tensors were executed, torch_xla would reuse the memory of a parameter for its new value.
    Other pending work that reads the old value would then fail ("buffer is deleted", 2.9).
    """
    if any(tensor.device.type == "xla" for tensor in tensors):
        default = private(CORE, "_xla_get_default_device")()
        private(CORE, "_xla_sync_live_tensors")(default, [], True)


own_reads: list[Callable[[], AbstractContextManager[None]]] = []
"""Contexts that are entered while numdrift reads values for itself."""


def read_xla(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the values of tensors on the CPU, for numdrift itself."""
    with ExitStack() as stack:
        for own_read in own_reads:
            stack.enter_context(own_read())
        with torch.no_grad():  # detach() would make a separate graph for each tensor
            return [tensor.cpu() for tensor in tensors]


def execute_xla_op_by_op(wanted: bool) -> None:
    """Turn torch_xla's eager mode on or off; the mode compiles and executes each op separately when it is called."""
    private(CORE, "_set_use_eager_mode")(wanted)


def is_xla_op_by_op() -> bool:
    return bool(private(CORE, "_get_use_eager_mode")())


@contextmanager
def xla_op_by_op(wanted: bool) -> Iterator[None]:
    """Turn torch_xla's eager mode on or off within the context."""
    before = is_xla_op_by_op()
    execute_xla_op_by_op(wanted)
    try:
        yield
    finally:
        execute_xla_op_by_op(before)


@contextmanager
def xla_generator_kept() -> Iterator[None]:
    """Restore the device's generator after the context, as if nothing had been executed in it.

    Each execution seeds the generator anew, and `torch.manual_seed` does not affect it.
    """
    device = private(CORE, "_xla_get_default_device")()
    seed = private(CORE, "_xla_get_rng_seed")(device)
    try:
        yield
    finally:
        private(CORE, "_xla_set_rng_seed")(seed, device)


# How torch_xla treats an op: the counters of its fallbacks, and the HLO of pending tensors.

XLA_KEY = "XLA"


def xla_counter(name: str) -> int:
    """Return torch_xla's counter of this name; `aten::nonzero` counts executions of that op on the CPU."""
    value: int | None = private("torch_xla.debug.metrics", "counter_value")(name)
    return value or 0


def xla_hlo(tensors: Sequence[torch.Tensor]) -> str:
    """Return the HLO of the graph that is pending for these tensors. The graph is lowered but not executed.

    Raises RuntimeError if an op cannot be lowered.
    """
    return str(private(CORE, "_get_xla_tensors_hlo")(list(tensors)))


# The copies by which values leave the device and come back.

Copied = Callable[[bool, FrameType | None, Callable[[], Any]], Any]
"""Makes a copy and returns its result; called with whether the copy goes to the CPU, the Python frame that led to the
copy, and the function that copies."""


def around_xla_copies(copied: Copied) -> Undo:
    """Make `copied` perform each copy between an xla tensor and the CPU.

    A script that reads a value makes such a copy. An op that torch_xla passes to the CPU makes several: its arguments
    are copied to the CPU, and its results back. No node of a graph changes. Returns the undo. Raises NotAvailable.
    """
    overrides = Overrides()

    def follow(name: str, goes: Callable[[Sequence[Any], Mapping[str, Any]], bool | None]) -> None:
        operation = getattr(torch.ops.aten, name).default
        kernel = original_kernel(operation, XLA_KEY)

        def copy(*args: Any, **kwargs: Any) -> Any:
            to_cpu = goes(args, kwargs)
            if to_cpu is None:
                return kernel(*args, **kwargs)
            # A backward runs on a thread without Python frames: take the frame that waits for the backward.
            caller = sys._getframe().f_back or sys._current_frames().get(threading.main_thread().ident or 0)
            return copied(to_cpu, caller, lambda: kernel(*args, **kwargs))

        overrides.replace(operation, XLA_KEY, copy)

    def within(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool | None:
        """Return whether a conversion goes to the CPU; None if it stays on the device."""
        wanted = kwargs.get("device")
        to_cpu = wanted is not None and torch.device(wanted).type != "xla"
        return to_cpu if to_cpu or args[0].device.type != "xla" else None

    follow("_to_copy", within)
    follow("_to_cpu", lambda args, kwargs: True)
    follow("_copy_from_and_resize", lambda args, kwargs: args[1].device.type != "xla")
    return overrides.close

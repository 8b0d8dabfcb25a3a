"""The lazy core: its TorchScript backend, mark_step and syncs, its graphs and its kernels."""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import NotAvailable
from ..device_kernels import DeviceKernel, kernels_under
from ..patches import Patches, Undo
from ..presence import private
from ..registered_kernels import Overrides


def start_lazy_backend() -> None:
    """Start the TorchScript backend of the lazy core once; a second start, such as the script's, does nothing."""
    backend = importlib.import_module("torch._lazy.ts_backend")
    start = private("torch._lazy.ts_backend", "init")
    try:
        start()
    except RuntimeError as error:
        raise NotAvailable("mode 'lazy'", str(error).splitlines()[0]) from error
    backend.init = lambda: None  # type: ignore[attr-defined]


def lazy_mark_step() -> Callable[[], None]:
    """Return the function that cuts and executes the pending lazy graph."""
    mark: Callable[[], None] = private("torch._lazy", "mark_step")
    return mark


def replace_lazy_mark_step(replacement: Callable[..., None]) -> Undo:
    """Route the script's own `torch._lazy.mark_step()` to `replacement`; return the undo."""
    patches = Patches("the lazy mode")
    patches.replace(importlib.import_module("torch._lazy"), "mark_step", replacement)
    return patches.undo


def replace_lazy_unscaling() -> Undo:
    """Make gradient scalers unscale lazy gradients; return the undo.

    The lazy core executes `_amp_foreach_non_finite_check_and_unscale_` on the CPU and loses its writes into a list
    (torch 2.13): gradients silently stay scaled.
    """
    original = private("torch", "_amp_foreach_non_finite_check_and_unscale_")

    def unscale(gradients: Sequence[torch.Tensor], nonfinite: torch.Tensor, inverse: torch.Tensor) -> None:
        if not any(gradient.device.type == "lazy" for gradient in gradients):
            original(gradients, nonfinite, inverse)
            return
        for gradient in gradients:
            nonfinite.copy_(torch.maximum(nonfinite, gradient.isfinite().logical_not().any().to(nonfinite.dtype)))
            gradient.mul_(inverse)

    patches = Patches("gradient scalers of lazy tensors")
    patches.replace(torch, original.__name__, unscale)
    return patches.undo


def sync_lazy(tensors: Sequence[torch.Tensor], reason: str = "read") -> None:
    """Execute the pending work of these lazy tensors in one graph; observers receive `reason`."""
    wanted = [tensor for tensor in tensors if tensor.device.type == "lazy"]
    if wanted:
        _reasons.append(reason)
        try:
            private("torch._C._lazy", "_sync_multi")(wanted, [], True, True)
        finally:
            _reasons.pop()


_reasons: list[str] = []


def sync_reason() -> str:
    """Return the reason for the current sync, "sync" if numdrift did not start it."""
    return _reasons[-1] if _reasons else "sync"


def lazy_has_value(tensor: torch.Tensor) -> bool:
    """Return whether the value of a lazy tensor can be read without executing anything. Adds nothing to any graph."""
    private("torch", "_functionalize_sync")(tensor)
    if _pending_graph(tensor) == _no_graph():
        return True
    # A value from the host that an op has already used has a node, but is available all the same.
    text = str(private("torch._C._lazy", "_get_tensors_text")([tensor]))
    nodes = [line for line in text.splitlines() if line.lstrip().startswith("%")]
    return len(nodes) == 1 and " lazy_tensors::device_data()" in nodes[0]


def _pending_graph(tensor: torch.Tensor) -> bytes:
    """Return the hash of the graph that computes the tensor."""
    return bytes(private("torch._C._lazy", "_get_graph_hash")([tensor]))


@functools.cache
def _no_graph() -> bytes:
    with torch.no_grad():
        return _pending_graph(torch.zeros((), device="cpu").to("lazy"))


# The pending work of the lazy core: the TorchScript graph of pending tensors, and its inputs.
#
# Parameters and inputs are in the order of the graph's nodes, so the k-th input is the parameter `pk` (torch 2.13).
# Reading them executes nothing.

NAMED_TUPLE = re.compile(r"NamedTuple\(([^()]*)\)")
"""A type that torch writes into a graph's text but cannot read: `NamedTuple(output : Tensor, weight : Tensor)`."""


def pending_torchscript(tensors: Sequence[torch.Tensor]) -> str:
    """Return the graph that computes pending lazy tensors, one output for each, as TorchScript's text."""
    return str(private("torch._C._lazy", "_get_tensors_backend")(list(tensors)))


def pending_data(tensors: Sequence[torch.Tensor]) -> list[tuple[int, torch.Tensor]]:
    """Return the inputs of the graph of `pending_torchscript`, in the order of its parameters.

    Each entry has the core's number for the value (-1 for a Python number of the script) and the value, which must not
    be written to.
    """
    ask = private("torch._C._lazy_ts_backend", "_get_tensors_ts_device_data_node")
    numbers, values = ask(list(tensors))
    return list(zip(numbers, values, strict=True))


def parsed_torchscript(text: str) -> Any:
    """Parse the text of a `torch._C.Graph`. Raises NotAvailable for a text that this torch cannot read."""
    parse = private("torch._C", "parse_ir")

    def unnamed(match: re.Match[str]) -> str:
        return f"({', '.join(part.partition(':')[2].strip() for part in match[1].split(','))})"

    try:
        return parse(NAMED_TUPLE.sub(unnamed, text), True)
    except RuntimeError as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise NotAvailable("the graph of a lazy execution", why) from error


# Lazy tensors op by op: each op is executed when it is called.


def execute_lazy_op_by_op() -> Callable[[], None]:
    """Make the core compile and execute each op, including copied views, as soon as it is called; return the undo.

    Each kernel of the core is followed by a sync of its results. An op without a kernel of the core runs on the CPU at
    once, as usual.
    """

    def executed(kernel: DeviceKernel) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            result = kernel.call(*kernel.inputs(args), **kwargs)
            outputs = result if isinstance(result, (list, tuple)) else (result,)
            sync_lazy([output for output in outputs if isinstance(output, torch.Tensor)], kernel.name)
            return result

        return called

    overrides = Overrides()
    for kernel in list(kernels_under(LAZY_KEY)):
        overrides.replace(kernel.operation, LAZY_KEY, executed(kernel))
    return overrides.close


# The lazy core's dispatch key, tensors and counters, and the last executed graph.

LAZY_KEY = "Lazy"

_LIBRARY = {"darwin": "libtorch_cpu.dylib", "win32": "torch_cpu.dll"}


def set_lazy_source_locations(wanted: bool) -> bool:
    """Set whether each new lazy node records the innermost Python frame that creates it; return the former setting."""
    folder = Path(torch.__file__).parent / "lib"
    try:
        library = ctypes.CDLL(str(folder / _LIBRARY.get(sys.platform, "libtorch_cpu.so")))
        flag = ctypes.c_bool.in_dll(library, "FLAGS_torch_lazy_ir_debug")
    except (OSError, ValueError) as error:
        why = f"torch {torch.__version__} does not have FLAGS_torch_lazy_ir_debug"
        raise NotAvailable("the recording of source lines for lazy nodes", why) from error
    before, flag.value = flag.value, wanted
    return before


def set_profiled_runs(runs: int) -> int:
    """Set the number of runs of a graph before TorchScript optimises it; return the former number."""
    return int(private("torch._C", "_jit_set_num_profiled_runs")(runs))


def last_torchscript_graph() -> Any:
    """Return the optimised graph that TorchScript executed last on this thread."""
    return private("torch._C", "_last_executed_optimized_graph")()


def torchscript_schema(text: str) -> Any:
    """Return the schema of a TorchScript node from its text."""
    return private("torch._C", "parse_schema")(text)


def lazy_tensor_id(tensor: torch.Tensor) -> int:
    """Return the lazy core's identifier of a lazy tensor's value; a new value of the tensor has a new identifier."""
    return int(private("torch._C._lazy", "_get_tensor_id")(tensor))


def lazy_counters() -> dict[str, int]:
    """Return the lazy core's counters since the process began. Those named `aten::...` count fallbacks to the CPU."""
    metrics = importlib.import_module("torch._lazy.metrics")
    values: Mapping[str, int | None] = {name: metrics.counter_value(name) for name in metrics.counter_names()}
    return {name: value or 0 for name, value in values.items()}


def settle_view(view: torch.Tensor) -> None:
    """Make a new view of a lazy tensor take its value from the view's base."""
    private("torch", "_functionalize_sync")(view)

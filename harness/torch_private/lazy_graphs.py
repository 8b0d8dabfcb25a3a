"""What the lazy core tells about its graphs: kernels, tensors, counters, and the graph that was executed
last."""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import NotAvailable
from .presence import private

LAZY_KEY = "Lazy"

_LIBRARY = {"darwin": "libtorch_cpu.dylib", "win32": "torch_cpu.dll"}
_wrapped: dict[tuple[type, str], torch.Tensor] = {}


def set_lazy_source_locations(wanted: bool) -> bool:
    """Whether each new lazy node notes the innermost Python frame of its making; gives what it was before."""
    folder = Path(torch.__file__).parent / "lib"
    try:
        library = ctypes.CDLL(str(folder / _LIBRARY.get(sys.platform, "libtorch_cpu.so")))
        flag = ctypes.c_bool.in_dll(library, "FLAGS_torch_lazy_ir_debug")
    except (OSError, ValueError) as error:
        raise NotAvailable("places of lazy nodes", f"torch {torch.__version__} does not have the flag") from error
    before, flag.value = flag.value, wanted
    return before


def set_profiled_runs(runs: int) -> int:
    """How often TorchScript runs a graph before it optimises it; gives what it was before."""
    return int(private("torch._C", "_jit_set_num_profiled_runs")(runs))


def last_torchscript_graph() -> Any:
    """The optimised graph that TorchScript executed last on this thread."""
    return private("torch._C", "_last_executed_optimized_graph")()


def torchscript_schema(text: str) -> Any:
    """The schema of a TorchScript node from its text."""
    return private("torch._C", "parse_schema")(text)


def lazy_kernels() -> dict[Any, Callable[..., Any]]:
    """Each aten overload that the lazy core has a kernel for, with what calls that kernel now.

    The call goes on if the overload is replaced afterwards, and adds no Python frame to the stack.
    """
    names = private("torch._C", "_dispatch_get_registrations_for_dispatch_key")(LAZY_KEY)
    find = private("torch.library", "get_kernel")
    keys = private("torch._C", "DispatchKeySet")(getattr(private("torch._C", "DispatchKey"), LAZY_KEY))
    found: dict[Any, Callable[..., Any]] = {}
    for full in names:
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name, None) if space == "aten" else None
        operation = getattr(packet, overload or "default", None)
        if operation is not None:
            found[operation] = functools.partial(find(operation, LAZY_KEY).call_boxed, keys)
    return found


def lazy_tensor_id(tensor: torch.Tensor) -> int:
    """What the lazy core knows the value of a lazy tensor by; another value of the same tensor has another."""
    return int(private("torch._C._lazy", "_get_tensor_id")(tensor))


def lazy_counters() -> dict[str, int]:
    """What the lazy core has counted since the process began; `aten::` names are ops that fell back to the
    CPU."""
    metrics = importlib.import_module("torch._lazy.metrics")
    values: Mapping[str, int | None] = {name: metrics.counter_value(name) for name in metrics.counter_names()}
    return {name: value or 0 for name, value in values.items()}


def settle_view(view: torch.Tensor) -> None:
    """Have a new view of a lazy tensor take its value from what it is a view of."""
    private("torch", "_functionalize_sync")(view)


def wrapped_number(value: complex) -> torch.Tensor:
    """A number as the tensor that torch makes of it for `tensor * 2`, which takes part in type promotion
    weakly.

    The dispatcher shows a Python kernel the number itself, and the kernel below needs the tensor. Autograd
    keeps it of a product; another thread has autograd on, whatever the caller is in."""
    key = (type(value), repr(value))
    if key not in _wrapped:
        worker = threading.Thread(target=_wrap, args=(key, value))
        worker.start()
        worker.join()
    return _wrapped[key]


def _wrap(key: tuple[type, str], value: complex) -> None:
    product = torch.mul(torch.ones((), requires_grad=True), value)
    _wrapped[key] = product.grad_fn._saved_other  # type: ignore[union-attr]

"""Accelerators that the process is not to use: what torch asks of one of them is answered by another device."""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import NotAvailable
from .patches import Undo, wrapped
from .presence import private, require

DEVICE_NUMBERS = {"cpu": 0, "cuda": 1, "xla": 9, "xpu": 12, "mps": 13, "meta": 14, "hpu": 15, "lazy": 17}
"""`c10::DeviceType`: its numbers are part of torch's binary interface."""

DISPATCH_KEYS = {"cuda": "CUDA", "xpu": "XPU", "mps": "MPS", "hpu": "HPU"}

GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""`c10::impl::device_guard_impl_registry`: for each device type, who answers for it; null where nobody does."""

NEVER_USED = 5
"""The number of IDEEP, for which no build of torch has anybody."""


_meant: dict[str, str] = {}
"""The device that stands for an accelerator in this process, by the accelerator's name."""


def device_meant(device: torch.device) -> torch.device:
    """The device on which what is made on `device` comes to be."""
    return torch.device(_meant.get(device.type, device))


def answer_for(kinds: Sequence[str], device: str) -> Undo:
    """Have `device` answer where torch asks which device of one of `kinds` is the current one; gives the undo.

    `tensor.to("cuda")` asks that, and goes where the answer says. Raises NotAvailable where this torch keeps
    its answers otherwise."""
    guards, kind = _guards(), device.partition(":")[0]
    if kind not in DEVICE_NUMBERS or not guards[DEVICE_NUMBERS[kind]]:
        raise NotAvailable("redirected devices", f"torch {torch.__version__} has nobody to answer for {kind}")
    before = {one: guards[DEVICE_NUMBERS[one]] for one in kinds}
    for one in kinds:
        guards[DEVICE_NUMBERS[one]] = guards[DEVICE_NUMBERS[kind]]
        _meant[one] = device

    def undo() -> None:
        for one, address in before.items():
            guards[DEVICE_NUMBERS[one]] = address
            _meant.pop(one, None)

    return undo


def _guards() -> Any:
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        guards = (ctypes.c_void_p * 21).in_dll(ctypes.CDLL(str(library)), GUARDS)
    except (OSError, ValueError) as error:
        raise NotAvailable("redirected devices", f"{library} does not have {GUARDS}") from error
    if not guards[DEVICE_NUMBERS["cpu"]] or not guards[DEVICE_NUMBERS["meta"]] or guards[NEVER_USED]:
        raise NotAvailable("redirected devices", f"{GUARDS} of torch {torch.__version__} is of another form")
    return guards


def replace_initialisation(kind: str, begin: Callable[[], None]) -> Undo:
    """Have torch call `begin` when an accelerator is first asked for, and nothing of the accelerator's own.

    The functions of `torch.cuda` itself go on finding out that there is none: torch asks them for that.
    """
    name = f"torch.{kind}"
    try:
        module = importlib.import_module(name)
    except ImportError:
        sys.modules[name] = stand_in = types.ModuleType(name)
        stand_in._lazy_init = begin  # type: ignore[attr-defined]
        return lambda: sys.modules.__delitem__(name)
    if not hasattr(module, "_lazy_init"):
        return lambda: None

    def initialising(original: Callable[[], None]) -> Callable[[], None]:
        def initialise() -> None:
            caller = str(sys._getframe(1).f_globals.get("__name__"))
            if caller == name or caller.startswith(f"{name}."):
                original()
            else:
                begin()

        return initialise

    return wrapped("redirected devices", module, "_lazy_init", initialising)


def no_accelerator() -> bool:
    """Whether torch finds no accelerator, so that a number names no device."""
    find = getattr(torch._C, "_accelerator_getAccelerator", None)
    if find is None:
        return not torch.backends.cuda.is_built()
    try:
        find()
    except RuntimeError:
        return True
    return torch.cuda.device_count() == 0


def forget_package(deserializer: Callable[..., Any]) -> None:
    """Take out again what `torch.serialization.register_package` put in."""
    known = private("torch.serialization", "_package_registry")
    known[:] = [one for one in known if one[2] is not deserializer]


NO_DEVICES = ("_enter_autocast", "_exit_autocast")
"""Calls in a compiler's graph whose device stays what the script said."""


def redirect_traced_devices(redirected: Callable[[Any], Any]) -> Undo:
    """Put every argument that stands in a graph of dynamo's through `redirected`; gives the undo.

    What a graph sends to an accelerator never asks for the current device: it is traced without values.
    """
    tracer = private("torch._dynamo.output_graph", "SubgraphTracer")
    require(tracer, "create_proxy")

    def put(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(put, value))
        return redirected(value)

    def redirecting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create_proxy(self: Any, kind: str, target: Any, args: Any, kwargs: Any, *rest: Any, **named: Any) -> Any:
            if kind == "call_method" and target in ("to", "cuda", "xpu"):
                target, args, kwargs = _as_move(target, args, kwargs)
            if getattr(target, "__name__", "") not in NO_DEVICES:
                args, kwargs = put(args), {name: put(value) for name, value in kwargs.items()}
            return original(self, kind, target, args, kwargs, *rest, **named)

        return create_proxy

    return wrapped("devices in compiled graphs", tracer, "create_proxy", redirecting)


def _as_move(target: str, args: Any, kwargs: Any) -> tuple[str, Any, Any]:
    """A call of `.cuda(...)` or `.to(0)` as one of `.to("cuda", ...)`."""
    me, *rest = args
    if target != "to":
        kwargs = {"non_blocking": kwargs["non_blocking"]} if "non_blocking" in kwargs else {}
        return "to", (me, target), kwargs
    if rest and type(rest[0]) is int:
        rest[0] = "cuda"
    if type(kwargs.get("device")) is int:
        kwargs = {**kwargs, "device": "cuda"}
    return target, (me, *rest), kwargs

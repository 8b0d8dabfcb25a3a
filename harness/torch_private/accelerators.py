"""Which device is meant: accelerators that another device answers for, and tensors that are moved in place."""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import NotAvailable
from .patches import Undo, wrapped
from .presence import private, require

PRIVATE_USE = "privateuseone"
"""The name of the device type that torch keeps for plug-ins, until one of them renames it."""

GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""`c10::impl::device_guard_impl_registry`: the device guard of each device type; null where no guard is registered."""

NEVER_USED = 5
"""The number of IDEEP, for which no build of torch registers a guard."""

GET_DEVICE, ENTRIES = 2, 48
"""The place of `getDevice` in a guard's table of virtual functions (the third since torch 1.0), and more entries than
any such table has."""


def device_number(kind: str) -> int | None:
    """Return the number of a device type in `c10::DeviceType`, None for a type that this torch does not know.

    The numbers are part of torch's binary interface. A plug-in's device is the type that torch keeps for plug-ins,
    under the name that the plug-in has given it.
    """
    names = {name.lower(): int(number) for name, number in _device_types().__members__.items()}
    plugged_in = private("torch._C", "_get_privateuse1_backend_name")()
    return names.get("privateuse1") if kind in (PRIVATE_USE, plugged_in) else names.get(kind)


def _device_types() -> Any:
    return private("torch._C._autograd", "DeviceType")


_silent_guards: list[ctypes.Array[ctypes.c_void_p]] = []
"""The memory of the guards that were made here. They stay: a thread of autograd's may look at one at any time."""


def _silent_guard(own: int | None, mute: int | None) -> int:
    """Make a guard that gives the current device as `own` does, and otherwise does nothing, as the CPU's (`mute`) does.

    The engine of autograd tells every registered guard the current device before each node, and a device's own guard
    ends the process when it is told of another type (`CUDAGuardImpl::uncheckedSetDevice`, torch 2.11).
    """

    def table(address: int | None) -> ctypes.Array[ctypes.c_void_p]:
        assert address is not None
        functions = ctypes.c_void_p.from_address(address).value or 0
        # Before the functions lie the offset and the type of what has them.
        return (ctypes.c_void_p * ENTRIES).from_address(functions - 2 * ctypes.sizeof(ctypes.c_void_p))

    made = (ctypes.c_void_p * ENTRIES)(*table(mute))
    made[2 + GET_DEVICE] = table(own)[2 + GET_DEVICE]
    functions = ctypes.addressof(made) + 2 * ctypes.sizeof(ctypes.c_void_p)
    guard = (ctypes.c_void_p * 1)(functions)
    _silent_guards.extend((made, guard))
    return ctypes.addressof(guard)


_meant: dict[str, str] = {}
"""The device that stands for an accelerator in this process, by the accelerator's name."""


def device_meant(device: torch.device) -> torch.device:
    """The device on which what is made on `device` comes to be."""
    return torch.device(_meant.get(device.type, device))


def answer_for(kinds: Sequence[str], device: str) -> Undo:
    """Have `device` answer where torch asks which device of one of `kinds` is the current one; gives the undo.

    `tensor.to("cuda")` asks that, and goes where the answer says. Raises NotAvailable where this torch keeps
    its answers otherwise."""
    library, kind = Path(torch.__file__).parent / "lib" / "libc10.so", device.partition(":")[0]
    try:
        guards = (ctypes.c_void_p * len(_device_types().__members__)).in_dll(ctypes.CDLL(str(library)), GUARDS)
    except (OSError, ValueError) as error:
        raise NotAvailable("redirected devices", f"{library} does not have {GUARDS}") from error
    # Before anything is written into torch's memory: it holds who must be there, and nobody who cannot be.
    cpu, meta, own = (device_number(name) for name in ("cpu", "meta", kind))
    if cpu is None or meta is None or not guards[cpu] or not guards[meta] or guards[NEVER_USED]:
        raise NotAvailable("redirected devices", f"{GUARDS} of torch {torch.__version__} is of another form")
    if own is None or not guards[own]:
        raise NotAvailable("redirected devices", f"torch {torch.__version__} has no device guard for {kind}")
    numbers = {name: number for name in kinds if (number := device_number(name)) is not None}
    before = {name: guards[number] for name, number in numbers.items()}
    guard = guards[own] if kind == "cpu" else _silent_guard(guards[own], guards[cpu])
    for name, number in numbers.items():
        guards[number] = guard
        _meant[name] = device

    def undo() -> None:
        for name, address in before.items():
            guards[numbers[name]] = address
            _meant.pop(name, None)

    return undo


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
            # A call of `.cuda(...)` or `.to(0)` becomes one of `.to("cuda", ...)`.
            if kind == "call_method" and target == "to":
                me, *rest_of_args = args
                if rest_of_args and type(rest_of_args[0]) is int:
                    rest_of_args[0] = "cuda"
                if type(kwargs.get("device")) is int:
                    kwargs = {**kwargs, "device": "cuda"}
                args = (me, *rest_of_args)
            elif kind == "call_method" and target in ("cuda", "xpu"):
                kwargs = {"non_blocking": kwargs["non_blocking"]} if "non_blocking" in kwargs else {}
                target, args = "to", (args[0], target)
            if getattr(target, "__name__", "") not in NO_DEVICES:
                args, kwargs = put(args), {name: put(value) for name, value in kwargs.items()}
            return original(self, kind, target, args, kwargs, *rest, **named)

        return create_proxy

    return wrapped("devices in compiled graphs", tracer, "create_proxy", redirecting)


# Tensors moved to another device while they stay the same objects, and function modes that stay below all
# others.


@contextmanager
def without_weak_references(module: torch.nn.Module) -> Iterator[None]:
    """Within the context recurrent modules hold their parameters by no weak references: no tensor that has one can
    become another device's. torch's own `to` does the same."""
    recurrent = [one for one in module.modules() if isinstance(one, torch.nn.RNNBase)]
    for one in recurrent:
        require(one, "_flat_weight_refs")
        require(one, "_init_flat_weights")
        one._flat_weight_refs = []
    try:
        yield
    finally:
        for one in recurrent:
            one._init_flat_weights()


def move_in_place(tensor: torch.Tensor, device: str) -> None:
    """Move a leaf's value and gradient to another device. The tensor stays the same object, with its hooks.

    Raises RuntimeError where torch cannot do it: somebody else holds what is behind the tensor.
    """
    if private("torch._C._functorch", "is_functorch_wrapped_tensor")(tensor):
        raise RuntimeError("it is being transformed by torch.func")
    value = tensor.detach().to(device)
    gradient = tensor.grad
    # Among the CPU and the accelerators a tensor's own memory can be exchanged: `.data =` is enough.
    if torch._has_compatible_shallow_copy_type(tensor, value):
        tensor.data = value
        if gradient is not None:
            tensor.grad = gradient.to(device)
        return
    # A lazy tensor is of another kind inside: the two objects change what they stand for. torch refuses that while
    # anybody else holds either, so `value` goes first, and what belongs to the object is put back afterwards.
    new = torch.nn.Parameter(value) if isinstance(tensor, torch.nn.Parameter) else value
    hooks, after = tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)
    needs_gradient = tensor.requires_grad
    del value
    if type(new) is not type(tensor):
        new.__class__ = type(tensor)
    torch.utils.swap_tensors(tensor, new)
    tensor.requires_grad_(needs_gradient)
    if gradient is not None:
        tensor.grad = gradient.to(device)
    if hooks:
        tensor._backward_hooks = hooks
    if after:
        tensor._post_accumulate_grad_hooks = after


def enter_below(mode: TorchFunctionMode) -> None:
    """Enter a function mode below those that are on, so that leaving one of them leaves this one on.

    The mode of `torch.set_default_device` has to stay the lowest; that of `with torch.device(...)`, which is
    left by taking out the highest there is, has not."""
    context = private("torch.utils._device", "DeviceContext")
    above = _taken_out()
    if above and isinstance(above[0], context) and hasattr(above[0], "old_device"):
        _push(above.pop(0))
    _push(mode)
    for one in above:
        _push(one)


def take_out(mode: TorchFunctionMode) -> None:
    """Leave a function mode, wherever it is among those that are on."""
    for one in _taken_out():
        if one is not mode:
            _push(one)


def _taken_out() -> list[Any]:
    """Take all function modes out; gives them from the lowest up."""
    count = private("torch._C", "_len_torch_function_stack")
    pop = private("torch.overrides", "_pop_mode")
    return [pop() for _ in range(count())][::-1]


def _push(mode: Any) -> None:
    private("torch.overrides", "_push_mode")(mode)


def shard_offset(tensor: Any) -> tuple[int, ...]:
    """The global index of the first element of this rank's part of a DTensor, one number a dimension.

    Computed from shape, mesh and placements; no collective is started.
    """
    compute = private("torch.distributed.tensor._utils", "compute_local_shape_and_global_offset")
    _, offset = compute(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(int(one) for one in offset)

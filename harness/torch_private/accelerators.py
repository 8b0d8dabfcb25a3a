"""Redirection of accelerators: devices that answer for other devices, and tensors that are moved in place."""

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
"""The name of the device type that torch keeps for plug-ins, until a plug-in renames it."""

GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""`c10::impl::device_guard_impl_registry`: the device guard of each device type; null where no guard is registered."""

NEVER_USED = 5
"""The number of the device type IDEEP, for which no build of torch registers a guard."""

GET_DEVICE, ENTRIES = 2, 48
"""The index of `getDevice` in a guard's table of virtual functions (it has been the third entry since torch 1.0), and
an upper bound for the number of entries in such a table."""


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
"""The memory of the guards made by numdrift. It is never freed: a thread of autograd may read a guard at any time."""


def _silent_guard(device_guard: int | None, mute: int | None) -> int:
    """Create a guard that returns the current device like `device_guard`, and otherwise does nothing, like `mute`.

    `mute` is the guard of the CPU. Before each node, autograd's engine passes the current device to every
    registered guard. A device's own guard ends the process when it receives a device of a different type
    (`CUDAGuardImpl::uncheckedSetDevice`, torch 2.11).
    """

    def table(address: int | None) -> ctypes.Array[ctypes.c_void_p]:
        assert address is not None
        functions = ctypes.c_void_p.from_address(address).value or 0
        # Two entries, the object's offset and its type, precede the functions.
        return (ctypes.c_void_p * ENTRIES).from_address(functions - 2 * ctypes.sizeof(ctypes.c_void_p))

    entries = (ctypes.c_void_p * ENTRIES)(*table(mute))
    entries[2 + GET_DEVICE] = table(device_guard)[2 + GET_DEVICE]
    functions = ctypes.addressof(entries) + 2 * ctypes.sizeof(ctypes.c_void_p)
    guard = (ctypes.c_void_p * 1)(functions)
    _silent_guards.extend((entries, guard))
    return ctypes.addressof(guard)


_meant: dict[str, str] = {}
"""The device that replaces an accelerator in this process, by the accelerator's name."""


def device_meant(device: torch.device) -> torch.device:
    """Return the device on which a tensor created on `device` is placed."""
    return torch.device(_meant.get(device.type, device))


def answer_for(kinds: Sequence[str], device: str) -> Undo:
    """Make `device` answer when torch asks for the current device of one of `kinds`; return the undo.

    `tensor.to("cuda")` asks torch for the current device, and moves the tensor to the device that answers. Raises
    NotAvailable if this torch does not keep its guards in the expected way.
    """
    library, kind = Path(torch.__file__).parent / "lib" / "libc10.so", device.partition(":")[0]
    try:
        guards = (ctypes.c_void_p * len(_device_types().__members__)).in_dll(ctypes.CDLL(str(library)), GUARDS)
    except (OSError, ValueError) as error:
        raise NotAvailable("device redirection", f"{library} does not have {GUARDS}") from error
    # Before writing into torch's memory, check that the CPU and meta have a guard, and that IDEEP has none.
    cpu, meta, own_number = (device_number(name) for name in ("cpu", "meta", kind))
    if cpu is None or meta is None or not guards[cpu] or not guards[meta] or guards[NEVER_USED]:
        raise NotAvailable("device redirection", f"{GUARDS} of torch {torch.__version__} has an unexpected form")
    if own_number is None or not guards[own_number]:
        raise NotAvailable("device redirection", f"torch {torch.__version__} has no device guard for {kind}")
    numbers = {name: number for name in kinds if (number := device_number(name)) is not None}
    before = {name: guards[number] for name, number in numbers.items()}
    guard = guards[own_number] if kind == "cpu" else _silent_guard(guards[own_number], guards[cpu])
    for name, number in numbers.items():
        guards[number] = guard
        _meant[name] = device

    def undo() -> None:
        for name, address in before.items():
            guards[numbers[name]] = address
            _meant.pop(name, None)

    return undo


def replace_initialisation(kind: str, begin: Callable[[], None]) -> Undo:
    """Make torch call `begin` when an accelerator is first needed, instead of the accelerator's own initialisation.

    The functions of `torch.cuda` still report that there is no accelerator, since torch relies on that.
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

    return wrapped("device redirection", module, "_lazy_init", initialising)


def no_accelerator() -> bool:
    """Return whether torch finds no accelerator, so that a number alone identifies no device."""
    find = getattr(torch._C, "_accelerator_getAccelerator", None)
    if find is None:
        return not torch.backends.cuda.is_built()
    try:
        find()
    except RuntimeError:
        return True
    return torch.cuda.device_count() == 0


def forget_package(deserializer: Callable[..., Any]) -> None:
    """Remove the entry that `torch.serialization.register_package` made for this deserializer."""
    packages = private("torch.serialization", "_package_registry")
    packages[:] = [package for package in packages if package[2] is not deserializer]


NO_DEVICES = ("_enter_autocast", "_exit_autocast")
"""Calls in a compiler's graph whose device is not redirected."""


def redirect_traced_devices(redirected: Callable[[Any], Any]) -> Undo:
    """Pass every argument in a graph of dynamo through `redirected`; return the undo.

    A graph that moves values to an accelerator is traced without values, so torch never asks for the current device.
    """
    tracer = private("torch._dynamo.output_graph", "SubgraphTracer")
    require(tracer, "create_proxy")

    def put(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(put, value))
        return redirected(value)

    def redirecting(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create_proxy(self: Any, kind: str, target: Any, args: Any, kwargs: Any, *extra: Any, **named: Any) -> Any:
            # A call of `.cuda(...)` or `.to(0)` becomes a call of `.to("cuda", ...)`.
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
            return original(self, kind, target, args, kwargs, *extra, **named)

        return create_proxy

    return wrapped("devices in compiled graphs", tracer, "create_proxy", redirecting)


# Move tensors to another device while they stay the same objects, and enter function modes below all others.


@contextmanager
def without_weak_references(module: torch.nn.Module) -> Iterator[None]:
    """Remove the weak references of recurrent modules to their parameters within the context.

    A tensor with a weak reference to it cannot become a tensor of another device. torch's own `to` also removes the
    references.
    """
    recurrent = [part for part in module.modules() if isinstance(part, torch.nn.RNNBase)]
    for part in recurrent:
        require(part, "_flat_weight_refs")
        require(part, "_init_flat_weights")
        part._flat_weight_refs = []
    try:
        yield
    finally:
        for part in recurrent:
            part._init_flat_weights()


def move_in_place(tensor: torch.Tensor, device: str) -> None:
    """Move a leaf's value and gradient to another device. The tensor stays the same object, with its hooks.

    Raises RuntimeError if something else holds the tensor's implementation, so that torch cannot exchange it.
    """
    if private("torch._C._functorch", "is_functorch_wrapped_tensor")(tensor):
        raise RuntimeError("it is being transformed by torch.func")
    value = tensor.detach().to(device)
    gradient = tensor.grad
    # Between the CPU and the accelerators, `.data =` is enough, since it can exchange the tensor's memory.
    if torch._has_compatible_shallow_copy_type(tensor, value):
        tensor.data = value
        if gradient is not None:
            tensor.grad = gradient.to(device)
        return
    # A lazy tensor has a different kind of implementation, so the two tensors exchange their implementations. Torch
    # refuses if anything else holds an implementation, so `value` is deleted first, and the tensor's hooks are restored
    # afterwards.
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
    """Enter a function mode below the active ones, so that it stays active when one of them is left.

    Only the mode of `torch.set_default_device` has to stay the lowest. The mode of `with torch.device(...)` need not:
    torch leaves it by removing the highest mode.
    """
    context = private("torch.utils._device", "DeviceContext")
    above = _popped_modes()
    if above and isinstance(above[0], context) and hasattr(above[0], "old_device"):
        _push(above.pop(0))
    _push(mode)
    for upper_mode in above:
        _push(upper_mode)


def take_out(mode: TorchFunctionMode) -> None:
    """Leave a function mode at any position among the active ones."""
    for active_mode in _popped_modes():
        if active_mode is not mode:
            _push(active_mode)


def _popped_modes() -> list[Any]:
    """Remove all function modes and return them from the lowest up."""
    count = private("torch._C", "_len_torch_function_stack")
    pop = private("torch.overrides", "_pop_mode")
    return [pop() for _ in range(count())][::-1]


def _push(mode: Any) -> None:
    private("torch.overrides", "_push_mode")(mode)


def shard_offset(tensor: Any) -> tuple[int, ...]:
    """Return the global index of the first element of this rank's part of a DTensor, one number per dimension.

    It is computed from shape, mesh and placements; no collective is started.
    """
    compute = private("torch.distributed.tensor._utils", "compute_local_shape_and_global_offset")
    _, offset = compute(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(int(index) for index in offset)

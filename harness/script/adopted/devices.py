"""Redirection to the mode's device of everything that the script sends to an accelerator, which the machine may lack.

Ops have no additional cost: torch is changed only where it determines which device is meant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import AdoptionError, NotAvailable
from ...records.modes.mode_registry import DEVICES_WITHOUT_STORAGE, registry
from ...torch_private.accelerators import (
    answer_for,
    forget_package,
    no_accelerator,
    redirect_traced_devices,
    replace_initialisation,
)
from ...torch_private.operators import find_overload
from ...torch_private.patches import Patches
from ...torch_private.registered_kernels import Overrides, dispatch_key
from ..understood import ScriptNotes

ACCELERATORS = ("cuda", "xpu", "mps", "hpu")
"""The accelerators that a script may name. An npu is not among them: torch knows it only with a plug-in, which the
script itself imports."""

FACTORIES = ("empty.memory_format", "empty_strided.default", "tril_indices.default", "triu_indices.default")
"""The basic ops that create tensors on a named device."""

LOAD_FIRST = 1
"""The priority of numdrift's function among the functions that place a file's tensors. torch's own begin at 10."""


class DeviceRedirection:
    """Redirects devices from `install` to `close`.

    `loaded` is called when tensors from a file stay on the CPU although the script wanted them on the mode's device.
    """

    def __init__(
        self,
        device: str,
        notes: ScriptNotes,
        loaded: Callable[[], None] = lambda: None,
        kinds: Sequence[str] = ACCELERATORS,
        *,
        draws_on_the_cpu: bool = False,
    ) -> None:
        self.device = device
        self._draws_on_the_cpu = draws_on_the_cpu
        self._kind = device.partition(":")[0]
        self.kinds = tuple(kind for kind in kinds if kind != self._kind)
        self._notes = notes
        self._loaded = loaded
        self._patches = Patches("device redirection")

    def install(self) -> None:
        with self._patches as patches:
            try:
                patches.also(answer_for(self.kinds, self.device))
            except NotAvailable as error:
                self._notes.doubt(f"the devices that the script names are not redirected: {error}")
                return
            for kind in self.kinds:
                begin = functools.partial(self.redirected, kind)
                patches.also(replace_initialisation(kind, begin))
            overrides = Overrides()
            patches.also(overrides.close)
            for name in FACTORIES:
                overload = find_overload(name)
                for kind in self.kinds:
                    overrides.replace(overload, dispatch_key(kind), self._factory(overload, kind))
            # In a run with shifted seeds, this type has already been wrapped by the code that shifts them.
            patches.wrap(torch, "Generator", lambda before: _generator_type(before, self._generator_device))
            self._redirect_loading()
            numbers, without_storage = no_accelerator(), self._kind in DEVICES_WITHOUT_STORAGE
            if numbers:
                # `.to(0)` means the machine's accelerator. On a machine that has none, torch does not accept it.
                patches.replace(torch.Tensor, "to", _with_numbers(torch.Tensor.to))
                patches.replace(torch.Tensor, "cuda", _with_numbers(torch.Tensor.cuda))
                # Without an accelerator, memory need not be pinned. The method returns a copy, as on an accelerator.
                patches.replace(torch.Tensor, "pin_memory", lambda tensor, device=None: tensor.clone())
            if without_storage:
                reduce = _saved_from_cpu(torch.Tensor.__reduce_ex__)
                patches.replace(torch.Tensor, "__reduce_ex__", reduce)
                patches.replace(torch.nn.Module, "cuda", _keeping_parameters(torch.nn.Module.cuda))
            if numbers or without_storage:
                move = _with_numbers(torch.nn.Module.to) if numbers else torch.nn.Module.to
                patches.replace(torch.nn.Module, "to", _keeping_parameters(move) if without_storage else move)
            if not registry.capabilities(self._kind).default_device:
                patches.replace(torch, "set_default_device", self._refusing(torch.set_default_device))

    def redirect_traced(self) -> None:
        """Redirect devices in compiled code too. This loads the compiler."""
        self._patches.also(redirect_traced_devices(self.meant))

    def close(self) -> None:
        self._patches.undo()

    def meant(self, value: Any) -> Any:
        """Return the mode's device if `value` names a redirected accelerator, in any form that torch accepts.

        Return any other value unchanged.
        """
        if isinstance(value, torch.device):
            return torch.device(self.device) if self._is_redirected(value.type) else value
        if isinstance(value, str) and value.partition(":")[0] in self.kinds:
            return self.device if self._is_redirected(value.partition(":")[0]) else value
        return value

    def _refusing(self, original: Callable[[Any], None]) -> Callable[[Any], None]:
        """Wrap `set_default_device` so that it rejects `lazy`.

        With `lazy` as the default, torch's lazy core would end the process with a segmentation fault (torch 2.13).
        """

        def set_default_device(device: Any) -> None:
            meant = None if device is None else torch.device(self.meant(device))
            if meant is not None and not registry.capabilities(meant.type).default_device:
                raise AdoptionError(
                    "torch.set_default_device cannot be lazy, because that would crash torch's lazy core: set no "
                    'default device in this mode, and move the model and the data to os.environ["DEVICE"]'
                )
            original(device)

        return set_default_device

    def redirected(self, kind: str) -> None:
        """Report that the script used `kind`."""
        self._notes.note("device", f"{kind} is {self._kind} in this mode")

    def _is_redirected(self, kind: str) -> bool:
        if kind in self.kinds:
            self.redirected(kind)
            return True
        return False

    def _factory(self, overload: Any, kind: str) -> Callable[..., Any]:
        def make(*args: Any, device: Any = None, pin_memory: Any = None, **kwargs: Any) -> Any:
            self.redirected(kind)
            return overload(*args, device=self.device, **kwargs)

        return make

    def _generator_device(self, device: Any) -> Any:
        """Return the device on which a generator is created that the script requests for `device`.

        Lazy and xla devices have no generators, so the CPU's generators draw for them. They also draw for a mode with
        `draws=cpu`.
        """
        meant = self.meant(device)
        if meant is device and str(meant).partition(":")[0] != self._kind:
            return device
        return "cpu" if self._kind in DEVICES_WITHOUT_STORAGE or self._draws_on_the_cpu else self.device

    def _redirect_loading(self) -> None:
        def place(storage: Any, location: str) -> Any:
            named = location.partition(":")[0]
            if not self._is_redirected(named) and not (named == self._kind and named in DEVICES_WITHOUT_STORAGE):
                return None
            if self._kind == "cpu":
                return storage
            if self._kind in DEVICES_WITHOUT_STORAGE:
                self._loaded()
                return storage
            return storage.to(device=torch.device(self.device))

        torch.serialization.register_package(LOAD_FIRST, lambda storage: None, place)
        self._patches.also(lambda: forget_package(place))
        if self._kind in ("cpu", *DEVICES_WITHOUT_STORAGE):
            from_cuda = lambda storage, *_, **__: place(storage, "cuda")
            self._patches.replace(torch.UntypedStorage, "cuda", from_cuda)


def _generator_type(original: Any, device_of: Callable[[Any], Any]) -> Any:
    """Return a type that replaces torch.Generator. Calling it creates a generator of the original type."""

    class GeneratorKind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, original)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, original)

        def __call__(cls, device: Any = "cpu") -> Any:
            return original(device=device_of(device))

    return GeneratorKind("Generator", (), {"__doc__": original.__doc__, "__module__": "torch"})


def _with_numbers(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method whose first argument is a device, so that a number means a CUDA device."""

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, torch.Tensor) and torch.overrides.has_torch_function((self,)):
            return torch.overrides.handle_torch_function(method, (self,), self, *args, **kwargs)
        if args and type(args[0]) is int:
            args = (f"cuda:{args[0]}", *args[1:])
        elif type(kwargs.get("device")) is int:
            kwargs = {**kwargs, "device": f"cuda:{kwargs['device']}"}
        return original(self, *args, **kwargs)

    return method


def _keeping_parameters(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that moves a module, so that the module's parameters stay the same objects, as on an accelerator.

    torch would create new parameters: an existing optimizer would continue with the old ones, and tied weights would be
    separated.
    """

    @functools.wraps(original)
    def move(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return original(module, *args, **kwargs)
        except RuntimeError as error:
            if "swap" not in str(error):  # torch cannot swap a parameter that something else refers to
                raise
        finally:
            torch.__future__.set_swap_module_params_on_conversion(before)
        return original(module, *args, **kwargs)

    return move


def _saved_from_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `__reduce_ex__`, so that a tensor without storage is saved as a tensor on the CPU."""

    @functools.wraps(original)
    def reduce(tensor: torch.Tensor, protocol: Any) -> Any:
        if tensor.device.type in DEVICES_WITHOUT_STORAGE:
            tensor = tensor.detach().cpu().requires_grad_(tensor.requires_grad)
        return original(tensor, protocol)

    return reduce

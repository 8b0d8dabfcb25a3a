"""Eager execution on the CPU or an accelerator, possibly in another precision: the trivial implementation of `Mode`."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...errors import NotAvailable
from ...hooks.backend_adapter import Adapter, load_adapter
from ...hooks.mode_protocol import Mode, Moment, ScriptFacts
from ...records.modes.mode_registry import PLAIN, registry
from ...records.modes.mode_spec import ModeSpec
from ...tape.shards import local_tensor
from ...tape.stated_settings import put_stated, stated_names
from ...tape.step_settings import put_settings, read_settings
from ...torch_private.patches import Patches
from ..cpu_draws import draw_on_the_cpu

# Run a script's models in another floating-point type, from the same initial values.
#
# The script builds its model as usual. The parameters are converted just before the first call, so a float64 run
# starts from exactly the float32 run's numbers. With `torch.set_default_dtype` it would not: random initialisation
# draws other numbers in another type.


def convert(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert floating-point parameters and buffers in place, and from now on the floating-point inputs of each call.

    Parameters remain the same objects, so an optimizer that holds them still works.
    """
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.data = tensor.data.to(dtype)

    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    def before_call(_: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return tuple(cast(value) for value in args), {name: cast(value) for name, value in kwargs.items()}

    module.register_forward_pre_hook(before_call, with_kwargs=True)


class EagerMode(Mode):
    """The mode that runs the script unchanged: it places nothing and holds nothing back."""

    capabilities = PLAIN

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec
        self.device = spec.device or registry.device(spec.base)
        self.swaps: Swaps | None = None
        self._patches = Patches("the mode")

    def require_here(self) -> None:
        require_device(self.device)

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        self.set_up(swaps)
        swaps.install(self.device)

    def set_up(self, swaps: Swaps) -> None:
        """Check the device, apply the mode's settings and seed, and keep `swaps`, which `close` notifies."""
        self.swaps = swaps
        require_device(self.device)
        self._patches.also(functools.partial(put_settings, read_settings(stated_names(self.spec))))
        put_stated(self.spec)
        if self.spec.seed is not None:
            torch.manual_seed(self.spec.seed)
        if self.spec.draws == "cpu":
            self._patches.also(draw_on_the_cpu(self.device))

    def adopt(self, module: torch.nn.Module) -> None:
        if self.spec.dtype is not None:
            convert(module, getattr(torch, self.spec.dtype))

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        if self.swaps is not None and moment == "backward":
            self.swaps.backward_ended()
        if self.swaps is not None and moment == "step":
            self.swaps.step_ended()
        if settled is not None:
            settled()

    def leave(self) -> None:
        """Undo the set-up."""
        self._patches.undo()

    def adapter(self) -> Adapter:
        return load_adapter("eager.adapter:EagerAdapter", self.spec)

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [local_tensor(tensor).detach().cpu() for tensor in tensors]


def require_device(device: str) -> None:
    """Load the module that a device needs, as stated by the mode of the same name.

    Raise NotAvailable if torch has no such device on this machine.
    """
    kind, _, number = device.partition(":")
    if kind in ("cpu", "lazy"):
        return
    if not hasattr(torch, kind) and (name := registry.module_of(kind)):
        try:
            importlib.import_module(name)
        except ImportError as error:
            package = name.partition(".")[0]
            raise NotAvailable(f"device {device!r}", str(error), f"install the package {package}") from error
    try:
        module = getattr(torch, kind, None)
        is_present = module is not None and module.is_available()
    except (AttributeError, RuntimeError) as error:
        raise NotAvailable(f"device {device!r}", str(error).splitlines()[0]) from error
    if module is None or not is_present:
        raise NotAvailable(f"device {device!r}", *_absent(kind))
    count = module.device_count()
    if number and int(number) >= count:
        devices = ", ".join(f"{kind}:{index}" for index in range(count))
        raise NotAvailable(f"device {device!r}", f"torch finds {devices}", "name one of these")


DRIVER = Path("/proc/driver/nvidia/version")
"""The file in which the driver of NVIDIA's GPUs states its version."""


def _absent(kind: str) -> tuple[str, str]:
    """Return the reason why torch finds no device of a kind, and the remedy."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if kind == "cuda" and not torch.backends.cuda.is_built() and DRIVER.exists():
        why = f"torch {torch.__version__} is built without CUDA, on a machine that has an NVIDIA driver"
        return why, "install a build of torch with CUDA"
    if kind == "cuda" and hidden is not None and hidden.strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES={hidden} hides all of them", "unset it, or name a device in it"
    why = f"torch {torch.__version__} finds none on this machine"
    return why, f"install the torch build or plug-in for {kind} on a machine that has the device"

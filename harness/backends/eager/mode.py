"""Eager execution on the CPU or an accelerator, possibly in another precision: the trivial implementation of `Mode`."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...hooks.backend_adapter import Adapter, load_adapter
from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import Mode, Moment, ScriptFacts
from ...records.modes.mode_registry import PLAIN, registry
from ...records.modes.mode_spec import ModeSpec
from ...tape.shards import local_tensor, some_are_sharded
from ...tape.stated_settings import put_stated, stated_settings
from ...tape.step_settings import put_settings, read_settings
from ...torch_private.patches import Patches
from ..cpu_draws import draw_on_the_cpu
from ..device_presence import require_device

# Run a script's models in another floating-point type, from the same initial values.
#
# The script builds its model as usual. The parameters are converted just before the first call, so a float64 run
# starts from exactly the float32 run's numbers. With `torch.set_default_dtype` it would not: random initialisation
# draws different numbers in a different type.


def convert(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert floating-point parameters and buffers in place, and, from now on, the floating-point inputs of each call.

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
    """The mode that runs the script unchanged: it neither moves tensors nor defers ops."""

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
        stated = [name for names in stated_settings(self.spec).values() for name in names]
        self._patches.also(functools.partial(put_settings, read_settings(stated)))
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

    def capture(self, request: CaptureRequest) -> Capture:
        capturing = importlib.import_module("numdrift.harness.backends.capturing.compiled_and_eager")
        capture: Capture = capturing.EagerUntilCompiled(request)
        return capture

    def adapter(self) -> Adapter:
        return load_adapter("eager.adapter:EagerAdapter", self.spec)

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [local_tensor(tensor).detach().cpu() for tensor in tensors]

    def in_place(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if some_are_sharded(tensors):
            tensors = [local_tensor(tensor) for tensor in tensors]
        return [tensor if tensor.is_cpu else tensor.detach() for tensor in tensors]

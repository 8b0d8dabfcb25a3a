"""Run a script's models in another floating-point type, from the same initial values.

The script builds its model as it always does; its parameters are converted just before the first call. So a
float64 run starts from exactly the float32 run's numbers, which `torch.set_default_dtype` would not give
(random initialisation draws other numbers in another type).
"""

from __future__ import annotations

from typing import Any

import torch


def convert(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert floating parameters and buffers in place, and from now on the floating inputs of each call.

    Parameters stay the same objects, so an optimizer that holds them goes on working.
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

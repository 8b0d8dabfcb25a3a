"""Lazy tensors, each op executed where it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .dispatching import Overrides
from .lazy import sync_lazy
from .lazy_graphs import LAZY_KEY, lazy_kernels, wrapped_number
from .operators import arguments_of


def execute_lazy_op_by_op() -> Callable[[], None]:
    """Have the core compile and execute each op by itself when it is called, copied views included; gives the
    undo.

    Every kernel of the core is followed by a sync of what it has made. An op that the core has no kernel for
    runs on the CPU at once as it is."""
    overrides = Overrides()
    for operation, kernel in lazy_kernels().items():
        overrides.replace(operation, LAZY_KEY, _executed(operation, kernel))
    return overrides.close


def _executed(operation: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    tensors = [one.kind in ("Tensor", "Optional[Tensor]") for one in arguments_of(operation)]
    name = str(operation).removesuffix(".default").replace(".", "::", 1)

    def called(*args: Any, **kwargs: Any) -> Any:
        given = [_tensor(one) if tensor else one for one, tensor in zip(args, tensors, strict=False)]
        made = kernel(*given, **kwargs)
        outputs = made if isinstance(made, (list, tuple)) else (made,)
        sync_lazy([one for one in outputs if isinstance(one, torch.Tensor)], name)
        return made

    return called


def _tensor(value: Any) -> Any:
    """A number in a tensor's place as the tensor that torch had made of it."""
    return wrapped_number(value) if isinstance(value, (bool, int, float, complex)) else value

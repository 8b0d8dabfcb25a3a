"""The random ops that a compiled graph executes, and how what each of them takes lies in memory.

Most kernels draw in the order of the memory: for a tensor in another layout the same numbers come into other elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..torch_private.dispatching import is_operation_overload, without_dispatch_modes, without_function_modes
from .call_log import PLACED
from .replay import generator_state
from .tape import leaves


@dataclass(frozen=True, slots=True)
class RandomCall:
    """One call of `op`, whichever its overload, in place or not. `draws` says whether it moved a default generator;
    `layouts` are size and stride of the tensors that it took."""

    op: str
    draws: bool
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


class RandomCalls:
    """The random calls of one execution, in its order."""

    def __init__(self) -> None:
        self._calls: list[RandomCall] = []

    def around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have an op executed, and note it if it is a random one."""
        if not is_random(operation):
            return operation(*args, **kwargs)
        given = list(leaves([*args, *kwargs.values()]))
        devices = {
            str(one if isinstance(one, torch.device) else one.device) for one in given if isinstance(one, PLACED)
        }
        with without_dispatch_modes(), without_function_modes():
            before = {device: generator_state(device) for device in {"cpu", *devices} - {"meta"}}
        # As they are before the call: it may let go of its inputs.
        layouts = tuple((tuple(one.size()), tuple(one.stride())) for one in given if isinstance(one, torch.Tensor))
        outputs = operation(*args, **kwargs)
        with without_dispatch_modes(), without_function_modes():
            draws = any(not torch.equal(state, generator_state(device)) for device, state in before.items())
        self._calls.append(RandomCall(_op(operation), draws, layouts))
        return outputs

    def next(self, operation: Any) -> RandomCall | None:
        """The first call of an op that this has not given yet; None for an op that is none or was not called again."""
        found = next((one for one in self._calls if one.op == _op(operation)), None)
        if found is not None:
            self._calls.remove(found)
        return found


def is_random(operation: Any) -> bool:
    """Whether an op may draw random numbers."""
    return is_operation_overload(operation) and torch.Tag.nondeterministic_seeded in operation.tags


def _op(operation: Any) -> str:
    return str(operation.name()).partition(".")[0].removesuffix("_")

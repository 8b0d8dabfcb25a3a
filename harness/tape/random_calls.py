"""The ops that a compiled graph executes by torch's own kernels, and how what each of them takes lies in memory.

Most random kernels draw in the order of the memory: for a tensor in another layout the same numbers come into other
elements. Others add up in another order there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ..torch_private.dispatching import is_operation_overload, without_dispatch_modes, without_function_modes
from ..torch_private.operators import arguments_of
from .call_log import devices_in
from .laid_out import LaidOut
from .replay import generator_state
from .tape import Call, View, leaves


@dataclass(frozen=True, slots=True)
class RandomCall:
    """One call of `op`, whichever its overload, in place or not. `draws` says whether it moved a default generator;
    `layouts` are size and stride of the tensors that it took."""

    op: str
    draws: bool
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class LaidCall:
    """One call of `op`, whichever its overload; `lies` is how the tensors among each of its arguments lay, by name."""

    op: str
    lies: Mapping[str, tuple[LaidOut, ...]]


class RandomCalls:
    """The random calls of one execution, in its order, and how the others found their tensors."""

    def __init__(self) -> None:
        self._calls: list[RandomCall] = []
        self._laid: list[LaidCall] = []

    def around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Have an op executed, and note it."""
        if not is_random(operation):
            if is_operation_overload(operation):
                with without_dispatch_modes(), without_function_modes(), suppress(Exception):
                    self._laid.append(LaidCall(_op(operation), _lies(operation, args, kwargs)))
            return operation(*args, **kwargs)
        given = list(leaves([*args, *kwargs.values()]))
        devices = map(str, devices_in(given))
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

    def layouts_of(self, call: Call, operation: Any) -> list[LaidOut] | None:
        """How the tensors lay that the first call took which may be this one of the graph, and was not given yet. None
        where there was none: what was generated calls no such op."""
        recorded = {name: lies for name, lies in _lies(operation, call.arguments, call.keywords).items() if lies}
        for one in self._laid:
            pairs = [(lies, one.lies.get(name, ())) for name, lies in recorded.items()]
            if one.op != _op(operation) or any(len(mine) != len(theirs) for mine, theirs in pairs):
                continue
            flat = [pair for mine, theirs in pairs for pair in zip(mine, theirs, strict=True)]
            # A bias may come expanded to all rows: it is added to each as it is.
            if all(mine.size == theirs.size or len(mine.size) < len(theirs.size) for mine, theirs in flat):
                self._laid.remove(one)
                return [theirs if mine.size == theirs.size else mine for mine, theirs in flat]
        return None


def _lies(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, tuple[LaidOut, ...]]:
    names = [one.name for one in arguments_of(operation)]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: tuple(map(LaidOut.of, filter(_is_laid_out, leaves(value)))) for name, value in given.items()}


def _is_laid_out(leaf: Any) -> bool:
    return isinstance(leaf, View) or (isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided)


def is_random(operation: Any) -> bool:
    """Whether an op may draw random numbers."""
    return is_operation_overload(operation) and torch.Tag.nondeterministic_seeded in operation.tags


def _op(operation: Any) -> str:
    return str(operation.name()).partition(".")[0].removesuffix("_")

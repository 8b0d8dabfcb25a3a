"""The ops that a compiled graph executes with torch's own kernels, and the layouts of the tensors that they take.

Most random kernels draw their numbers in the order of the elements in memory. In a tensor with a different layout, the
same numbers therefore go to different elements. A kernel that is not random may sum the elements in a different order.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ...torch_private.dispatching import without_dispatch_modes, without_function_modes
from ...torch_private.operators import arguments_of
from ..replaying.laid_out import LaidOut
from ..replaying.replay import generator_state
from ..tape import Call, View, leaves
from .call_log import devices_in
from .followed_calls import OpCall

Layouts = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""The sizes and strides of the tensors that a call takes."""


@dataclass(frozen=True, slots=True)
class DrawingCall:
    """A random call that is about to run. `states` are the states of the default generators, by device."""

    op: str
    states: Mapping[str, torch.Tensor]
    layouts: Layouts


@dataclass(frozen=True, slots=True)
class RandomCall:
    """A call of any overload of `op`, in place or not. `draws` says whether it advanced a default generator."""

    op: str
    draws: bool
    layouts: Layouts


@dataclass(frozen=True, slots=True)
class LaidCall:
    """A call of any overload of `op`. `lies` maps each argument's name to the layouts of the tensors in it."""

    op: str
    lies: Mapping[str, tuple[LaidOut, ...]]


class RandomCalls:
    """The random calls of one execution in order, and the layouts of the tensors that its other calls took."""

    def __init__(self) -> None:
        self._calls: list[RandomCall] = []
        self._laid: list[LaidCall] = []

    def before(self, call: OpCall) -> DrawingCall | None:
        """Note the layouts of a call's tensors, and the states of the generators that a random call may advance."""
        if not call.is_random:
            if call.is_overload:
                with without_dispatch_modes(), without_function_modes(), suppress(Exception):
                    self._laid.append(LaidCall(_op(call.operation), _lies(call.operation, call.args, call.kwargs)))
            return None
        devices = map(str, devices_in(call.values))
        with without_dispatch_modes(), without_function_modes():
            states = {device: generator_state(device) for device in {"cpu", *devices} - {"meta"}}
        # Read before the call, since the op may free its inputs.
        layouts = tuple((tuple(tensor.size()), tuple(tensor.stride())) for tensor in call.tensors)
        return DrawingCall(_op(call.operation), states, layouts)

    def after(self, call: DrawingCall, outputs: Any) -> None:
        """Note whether a random call has drawn numbers from a default generator."""
        with without_dispatch_modes(), without_function_modes():
            draws = any(not torch.equal(state, generator_state(device)) for device, state in call.states.items())
        self._calls.append(RandomCall(call.op, draws, call.layouts))

    def next(self, operation: Any) -> RandomCall | None:
        """Return the op's first random call that has not been returned yet, None if there is none."""
        call = next((candidate for candidate in self._calls if candidate.op == _op(operation)), None)
        if call is not None:
            self._calls.remove(call)
        return call

    def layouts_of(self, call: Call, operation: Any) -> list[LaidOut] | None:
        """Return the layouts of the tensors that a call of the graph took, None if the generated code has no such call.

        They are taken from the first executed call that matches the graph's call. Each executed call is used only once.
        """
        recorded = {name: lies for name, lies in _lies(operation, call.arguments, call.keywords).items() if lies}
        for laid in self._laid:
            pairs = [(lies, laid.lies.get(name, ())) for name, lies in recorded.items()]
            if laid.op != _op(operation) or any(len(expected) != len(actual) for expected, actual in pairs):
                continue
            flat = [pair for expected, actual in pairs for pair in zip(expected, actual, strict=True)]
            # The executed call may take a bias that is expanded to all rows; each row is then the graph's bias.
            if all(expected.size == actual.size or len(expected.size) < len(actual.size) for expected, actual in flat):
                self._laid.remove(laid)
                return [actual if expected.size == actual.size else expected for expected, actual in flat]
        return None


def _lies(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, tuple[LaidOut, ...]]:
    names = [argument.name for argument in arguments_of(operation)]
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: tuple(map(LaidOut.of, filter(_is_laid_out, leaves(value)))) for name, value in values.items()}


def _is_laid_out(leaf: Any) -> bool:
    return isinstance(leaf, View) or (isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided)


def _op(operation: Any) -> str:
    return str(operation.name()).partition(".")[0].removesuffix("_")

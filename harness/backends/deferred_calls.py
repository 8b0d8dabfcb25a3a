"""The kernel calls of a lazy core (torch's or torch_xla's) in the captured steps, and their operands and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in
from numdrift.kernels.swaps.sites import ModulePaths

from ..hooks.graph_capture import CaptureRequest
from ..records.tools.graph_record import Node, Value
from ..script.script_lines import HARNESS
from ..torch_private.device_kernels import DeviceKernel
from ..torch_private.operators import schema_of
from .call_places import CallPlaces
from .called_operators import KeptFailure, plain
from .followed_kernels import FollowedKernels, KernelCall


@dataclass(frozen=True, slots=True)
class Operand:
    """One value that a kernel takes.

    tensor: the lazy core's number for a tensor's value, None for a number or a tensor on a different device.
    value: the dtype and shape of a tensor, None for a number.
    """

    name: str
    tensor: int | None
    value: Value | None = None

    @property
    def is_number(self) -> bool:
        """Return whether this is a number, not a value on the device. A CPU tensor without dimensions is a number."""
        return self.tensor is None and (self.value is None or not self.value.shape)


@dataclass(slots=True)
class FollowedCall:
    """One call of a kernel.

    step: the step of the call.
    place: its op, phase, module, source, stack, sequence and attributes.
    parent: the number of the call within which it is made, None if there is no such call.
    is_setup: True if no model had been called yet.
    is_reading: True if a recorder made the call to read a value, so that it is not an op of the training.
    made: the lazy core's numbers for its results.
    results: the dtype and shape of each result.
    """

    number: int
    step: int
    place: Node
    operands: tuple[Operand, ...] = ()
    parent: int | None = None
    is_setup: bool = False
    is_reading: bool = False
    made: list[int] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)


NumberOf = Callable[[torch.Tensor], int | None]
"""Returns a lazy core's number for the value of a tensor, None for a tensor on a different device.

When a tensor gets a new value, the new value has a new number.
"""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call: the values that its kernel takes, and the rest as attributes."""

    operands: tuple[Operand, ...]
    attributes: dict[str, Any]

    @classmethod
    def of(cls, number_of: NumberOf, call: KernelCall) -> Arguments:
        args, kwargs = call.args, call.kwargs
        operands: list[Operand] = []
        attributes: dict[str, Any] = {}
        for position, argument in enumerate(schema_of(call.operation).arguments):
            name, is_passed = argument.name, position < len(args) or argument.name in kwargs
            value = args[position] if position < len(args) else kwargs.get(name, argument.default_value)
            tensors = list(tensors_in(value))
            operands += [Operand(name, number_of(tensor), value_of(tensor)) for tensor in tensors]
            if "number" in str(argument.type) and value is not None:
                operands.append(Operand(name, None))
            if is_passed and value is not None and not tensors:
                attributes[name] = plain(value)
            elif is_passed and len(tensors) == 1 and tensors[0].device.type == "cpu" and not tensors[0].dim():
                # In the IR, a number on the CPU is a constant rather than an operand.
                attributes[name] = tensors[0].item()
        return cls(tuple(operands), attributes)


def value_of(tensor: torch.Tensor) -> Value:
    return Value(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


# The lazy values that the capture has seen.

SAME = ("alias_copy", "detach_copy")
"""Ops whose result equals their argument. The core keeps a tensor and its detached alias as two values."""


class KnownValues:
    """Facts about values, by the lazy core's numbers. A number is never reused, so no entry has to be removed.

    calls: the followed calls, by their own numbers.
    makers: the call that made each value.
    bindings: the script's name for each value.
    executed: the name of each value in the graph that computed it.
    """

    def __init__(self, number_of: NumberOf) -> None:
        self.number_of = number_of
        self.calls: dict[int, FollowedCall] = {}
        self.makers: dict[int, FollowedCall] = {}
        self.bindings: dict[int, str] = {}
        self.executed: dict[int, str] = {}
        self._same: dict[int, list[int]] = {}

    def name(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind the current values of these tensors to the script's names for them."""
        for binding, tensor in tensors.items():
            number = self.number_of(tensor)
            if number is not None:
                self.bindings.setdefault(number, binding)

    def name_losses(self, losses: Sequence[torch.Tensor]) -> None:
        """Bind the value that a backward starts from to the name `loss`; bind several to `loss 0`, `loss 1`, ..."""
        many = len(losses) > 1
        self.name({f"loss {index}" if many else "loss": loss for index, loss in enumerate(losses)})

    def numbers_in(self, outputs: Any) -> list[int]:
        """Return the numbers of the tensors that a call returned."""
        return [number for tensor in tensors_in(outputs) if (number := self.number_of(tensor)) is not None]

    def made(self, call: FollowedCall) -> None:
        """Record a call that has run."""
        for number in call.made:
            self.makers[number] = call
        source = call.operands[0].tensor if call.operands else None
        if call.place.op in SAME and source is not None and call.made:
            self._same.setdefault(call.made[0], []).append(source)
            self._same.setdefault(source, []).append(call.made[0])

    def binding(self, number: int) -> str:
        """Return the script's name for a value or for an equal one, "" if the script has none."""
        # A breadth-first search: the value itself, then the values equal to it, nearest first
        met, waiting = {number}, [number]
        while waiting:
            current = waiting.pop(0)
            if current in self.bindings:
                return self.bindings[current]
            following = [neighbour for neighbour in self._same.get(current, ()) if neighbour not in met]
            met.update(following)
            waiting += following
        return ""


class CallFollower:
    """The follower of a core's kernel calls, from its construction to `close`.

    A failure of the follower in the middle of an op is `kept`; from then on, ops run unobserved. `is_pending` is true
    once the wanted steps are over, when only their last graphs have yet to be executed.
    """

    def __init__(self, values: KnownValues, request: CaptureRequest, kernels: Iterable[DeviceKernel], key: str) -> None:
        self.kept = KeptFailure()
        self.is_setup = self.is_pending = False
        self.step = 0
        self._known_values = values
        self._modules = ModulePaths()
        self._within: list[int] = []
        self.places = CallPlaces(request.script, self._modules)
        self._kernels = FollowedKernels(
            kernels, key, self._before, self._after, lambda call, error: self._after(call, None)
        )

    def close(self) -> None:
        """Remove every hook. Must not be called from within a kernel."""
        self._kernels.close()
        self._modules.close()

    @property
    def _is_followed(self) -> bool:
        """Return whether the next call is a call of the training, and can be followed."""
        return self.kept.error is None

    def _beginning(self) -> None:
        """Prepare for a call that is about to be recorded."""

    def _began(self, followed: FollowedCall, call: KernelCall) -> None:
        """Note a call that has been recorded and is about to run."""

    def _ended(self, followed: FollowedCall) -> None:
        """Note a call that has run, or has raised."""

    def _whole(self, call: KernelCall, place: Node) -> int | None:
        """If this kernel call is part of a decomposed op, return the number of that op's call; otherwise None.

        This method is not called for a kernel call within another kernel call.
        """
        return None

    def _before(self, call: KernelCall) -> FollowedCall | None:
        if not self._is_followed:
            return None
        with self.kept:
            self._beginning()
            if not self._is_followed:
                return None
            arguments = Arguments.of(self._known_values.number_of, call)
            place = self.places.here(call.operation, arguments.attributes)
            parent = self._within[-1] if self._within else self._whole(call, place)
            by_harness = call.caller is not None and call.caller.f_code.co_filename.startswith(HARNESS)
            is_reading = by_harness and parent is None
            number = len(self._known_values.calls)
            followed = FollowedCall(number, self.step, place, arguments.operands, parent, self.is_setup, is_reading)
            self._began(followed, call)
            self._known_values.calls[number] = followed
            self._within.append(number)
            return followed
        return None

    def _after(self, followed: FollowedCall, outputs: Any) -> None:
        if self.kept.error is not None:
            return
        with self.kept:
            self._within.pop()
            made = [tensor for tensor in tensors_in(outputs) if self._known_values.number_of(tensor) is not None]
            followed.made = self._known_values.numbers_in(made)
            followed.results = [value_of(tensor) for tensor in made]
            self._known_values.made(followed)
            self._ended(followed)

"""Every kernel call of a lazy core (torch's, torch_xla's), and the mark that identifies the nodes of a call.

Each new lazy node notes the innermost Python frame. Every kernel is called from its own frame, which is named after the
number of the call. A graph's dump therefore shows which call made each node, even in the backward and in swapped
kernels. XLA's dump has the line of the frame in place of its name, so the frame's line identifies the call too. The
mark changes neither nodes nor hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Generic, Protocol, TypeVar

import torch

from numdrift.kernels.expectation import tensors_in

from ..records.tools.graph_record import Node, Value
from ..tape.origin import CALLED_FROM
from ..torch_private.operators import arguments_of, schema_of
from ..torch_private.registered_kernels import Overrides
from .called_operators import plain
from .dispatched_support import as_tensor


@dataclass(frozen=True, slots=True)
class Operand:
    """One value that a kernel takes.

    tensor: the lazy core's number for a tensor's value, None for a number or a tensor of another device.
    value: the dtype and shape of a tensor, None for a number.
    """

    name: str
    tensor: int | None
    value: Value | None = None

    @property
    def is_number(self) -> bool:
        """Return whether it is a number, not a value of the device. A CPU tensor without dimensions is a number too."""
        return self.tensor is None and (self.value is None or not self.value.shape)


@dataclass(slots=True)
class FollowedCall:
    """One call of a kernel.

    step: the step of the call.
    place: its op, phase, module, source, stack, sequence and attributes.
    parent: the number of the call around it.
    is_setup: no model had been called yet.
    is_reading: it is no op of the training; a recorder reads a value.
    made: the lazy core's numbers for its results.
    results: the description of each result, if the follower asks for it.
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


class Numbered(Protocol):
    """The record of a call, which its follower identifies by a number."""

    @property
    def number(self) -> int: ...


Noted = TypeVar("Noted", bound=Numbered)


class FollowedKernels(Generic[Noted]):
    """Kernels that report each call, in place of the `kernels` of the dispatch key `key`, until `close`.

    `before` runs ahead of a call and returns its record, or None to leave the call unobserved. `after` takes that
    record and the outputs. Neither may raise. Do not call `close` from within a call.
    """

    def __init__(
        self,
        kernels: Mapping[Any, Callable[..., Any]],
        key: str,
        before: Callable[[Any, Sequence[Any], Mapping[str, Any]], Noted | None],
        after: Callable[[Noted, Any], None],
    ) -> None:
        self._before = before
        self._after = after
        self._overrides = Overrides()
        for operation, kernel in kernels.items():
            self._overrides.replace(operation, key, self._shown(operation, kernel))

    def close(self) -> None:
        self._overrides.close()

    def _shown(self, operation: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        kinds = [argument.kind for argument in arguments_of(operation)]
        tensors = [kind in ("Tensor", "Optional[Tensor]") for kind in kinds]

        def called(*args: Any, **kwargs: Any) -> Any:
            args = tuple(as_tensor(value) if tensor else value for value, tensor in zip(args, tensors, strict=False))
            call = self._before(operation, args, kwargs)
            if call is None:
                return kernel(*args, **kwargs)
            outputs = None
            try:
                outputs = named_frame(str(call.number), call.number)(kernel, args, kwargs)
            finally:
                self._after(call, outputs)
            return outputs

        return called


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return function(*args, **kwargs)


_CODE = _call.__code__


def named_frame(name: str, line: int = 1) -> Callable[..., Any]:
    """Return a function that calls another one from a frame of this name. The call is on the line after `line`."""
    code = _CODE.replace(co_name=name, co_qualname=name, co_filename=CALLED_FROM, co_firstlineno=line)
    return FunctionType(code, _call.__globals__)


def call_on(line: int) -> int:
    """Return the number of the call whose frame is on this line."""
    return line - 1


NumberOf = Callable[[torch.Tensor], int | None]
"""Returns a lazy core's number for the value of a tensor, None for a tensor of another device.

A new value of the same tensor has a new number.
"""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call: the values that its kernel takes, and the rest as attributes."""

    operands: tuple[Operand, ...]
    attributes: dict[str, Any]

    @classmethod
    def of(cls, number_of: NumberOf, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        operands: list[Operand] = []
        attributes: dict[str, Any] = {}
        for position, argument in enumerate(schema_of(operation).arguments):
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


# The lazy values that the capture has met.

SAME = ("alias_copy", "detach_copy")
"""Ops whose result equals their argument. The core keeps a tensor and its detached alias as two values."""


class KnownValues:
    """Facts about values by the lazy core's number. A number is never reused, so no entry has to be removed.

    calls: the followed calls, by their own numbers.
    makers: the call that made each value.
    bindings: the script's name for each.
    executed: its name in the graph that computed it.
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

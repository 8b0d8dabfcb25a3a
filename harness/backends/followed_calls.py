"""Every kernel call of a lazy core (torch's, torch_xla's), and the mark that identifies the nodes of a call.

Each new lazy node notes the innermost Python frame. Every kernel is called from a frame of its own whose name
is the number of the call. So the dump of a graph says of each node which call made it, in the backward and
inside of swapped kernels, too. XLA's dump has the line of the frame in place of its name. Neither nodes nor hashes
change because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Generic, Protocol, TypeVar

import torch

from numdrift.kernels.expectation import tensors_in

from ..records.graph_record import Node, Value
from ..tape.origin import CALLED_FROM
from ..torch_private.dispatching import Overrides
from ..torch_private.operators import arguments_of, schema_of
from .called_operators import plain
from .dispatched_support import as_tensor


@dataclass(frozen=True, slots=True)
class Operand:
    """One value that a kernel takes. `tensor` is the lazy core's number of it, None for a number; `value` describes
    a tensor."""

    name: str
    tensor: int | None
    value: Value | None = None

    @property
    def is_number(self) -> bool:
        """Say whether it is a number, not a value of the device; a CPU tensor without dimensions is a number, too."""
        return self.tensor is None and (self.value is None or not self.value.shape)


@dataclass(slots=True)
class FollowedCall:
    """One call of a kernel. `place` has the op, phase, module, source, stack and sequence, `attributes` included.

    `parent` is the number of the call around it. `made` are the lazy core's numbers of its results, and `results`
    describe each of them, for a follower that asks for that. `is_setup` says that no model had been called yet.
    `is_reading` says that it is no op of the training: a recorder reads a value. `step` is the step of the call.
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
    """Replaces the `kernels` of the dispatch key `key` by ones that show each call, until `close`.

    `before` returns the record of a call before it runs (None: nobody wants it); `after` takes that record
    and the outputs. Neither may raise. Not to be closed from within a call.
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
    """Return a function that calls another one from a frame of this name, on the line after `line`."""
    code = _CODE.replace(co_name=name, co_qualname=name, co_filename=CALLED_FROM, co_firstlineno=line)
    return FunctionType(code, _call.__globals__)


def call_on(line: int) -> int:
    """Return the number of the call whose frame is on this line."""
    return line - 1


NumberOf = Callable[[torch.Tensor], int | None]
"""Returns a lazy core's number for the value of a tensor, None for a tensor of another device. Another value of the
same tensor has another number."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of an op's call: the values that its kernel takes, and the rest as attributes."""

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
                # A number on the CPU is no operand of the IR but a constant in it.
                attributes[name] = tensors[0].item()
        return cls(tuple(operands), attributes)


def value_of(tensor: torch.Tensor) -> Value:
    return Value(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


# The lazy values that the capture knows: the call that made each, and the script's name for it.

SAME = ("alias_copy", "detach_copy")
"""Ops whose result is their argument: the core keeps a tensor and what it was detached from as two values."""


class KnownValues:
    """Values by the lazy core's number: the call that made each, the script's name for it, and its name in the graph
    that has computed it. A number is never used again, so nothing is forgotten."""

    def __init__(self, number_of: NumberOf) -> None:
        self.number_of = number_of
        self.calls: dict[int, FollowedCall] = {}
        self.makers: dict[int, FollowedCall] = {}
        self.bindings: dict[int, str] = {}
        self.executed: dict[int, str] = {}
        self._same: dict[int, list[int]] = {}

    def name(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Bind the values that these tensors have now to the script's names for them."""
        for binding, tensor in tensors.items():
            number = self.number_of(tensor)
            if number is not None:
                self.bindings.setdefault(number, binding)

    def numbers_in(self, outputs: Any) -> list[int]:
        """Return the numbers of the tensors that a call has returned."""
        return [number for tensor in tensors_in(outputs) if (number := self.number_of(tensor)) is not None]

    def made(self, call: FollowedCall) -> None:
        """Note a call that has run."""
        for number in call.made:
            self.makers[number] = call
        source = call.operands[0].tensor if call.operands else None
        if call.place.op in SAME and source is not None and call.made:
            self._same.setdefault(call.made[0], []).append(source)
            self._same.setdefault(source, []).append(call.made[0])

    def binding(self, number: int) -> str:
        """Return the script's name for a value, or for one that is the same; "" where the script has no name for it."""
        # The value itself, then all that are the same as it, nearest first
        met, waiting = {number}, [number]
        while waiting:
            current = waiting.pop(0)
            if current in self.bindings:
                return self.bindings[current]
            following = [neighbour for neighbour in self._same.get(current, ()) if neighbour not in met]
            met.update(following)
            waiting += following
        return ""

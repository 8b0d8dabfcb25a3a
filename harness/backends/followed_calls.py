"""Every kernel call of a lazy core (torch's, torch_xla's), and the mark by which the nodes of it are known again.

Each new lazy node notes the innermost Python frame. Every kernel is called from a frame of its own whose name
is the number of the call, so the dump of a graph says of each node which call made it, in the backward and
inside of swapped kernels, too. What XLA writes has the line of the frame in place of its name. Neither nodes nor hashes
change by that.
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
    """One value that a kernel is given: `tensor` is the lazy core's number of it, None for a number; `value` is what is
    known of a tensor."""

    name: str
    tensor: int | None
    value: Value | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is no value of the device but a number, which a tensor without dimensions on the CPU is, too."""
        return self.tensor is None and (self.value is None or not self.value.shape)


@dataclass(slots=True)
class FollowedCall:
    """One call of a kernel. `place` has the op, phase, module, source, stack and sequence, `attributes` included.

    `parent` is the call that it was made inside of; `made` are the lazy core's numbers of its results, `results` what
    is known of each, where whoever follows asks for that. `is_setup` says that no model had been called yet,
    `is_reading` that it is no op of the training: a recorder reads a value; `step` is the step in which it was.
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
    """What follows calls knows each of them by a number."""

    @property
    def number(self) -> int: ...


Noted = TypeVar("Noted", bound=Numbered)


class FollowedKernels(Generic[Noted]):
    """The `kernels` of the dispatch key `key` replaced by ones that show each call, until `close`.

    `before` is asked for the record of a call before it runs (None: nobody wants it), `after` is given that
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
        kinds = [one.kind for one in arguments_of(operation)]
        tensors = [kind in ("Tensor", "Optional[Tensor]") for kind in kinds]

        def called(*args: Any, **kwargs: Any) -> Any:
            args = tuple(as_tensor(one) if tensor else one for one, tensor in zip(args, tensors, strict=False))
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
    """What calls a function from a frame of this name, on the line after `line`."""
    code = _CODE.replace(co_name=name, co_qualname=name, co_filename=CALLED_FROM, co_firstlineno=line)
    return FunctionType(code, _call.__globals__)


def call_on(line: int) -> int:
    """The number of the call whose frame is on this line."""
    return line - 1


NumberOf = Callable[[torch.Tensor], int | None]
"""What a lazy core knows the value of a tensor by, None for a tensor of another device. Another value of the same
tensor has another number."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """What an op was called with: the values that its kernel is given, and the rest as attributes."""

    operands: tuple[Operand, ...]
    attributes: dict[str, Any]

    @classmethod
    def of(cls, number_of: NumberOf, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        operands: list[Operand] = []
        attributes: dict[str, Any] = {}
        for position, one in enumerate(schema_of(operation).arguments):
            name, given = one.name, position < len(args) or one.name in kwargs
            value = args[position] if position < len(args) else kwargs.get(name, one.default_value)
            tensors = list(tensors_in(value))
            operands += [Operand(name, number_of(tensor), value_of(tensor)) for tensor in tensors]
            if "number" in str(one.type) and value is not None:
                operands.append(Operand(name, None))
            if given and value is not None and not tensors:
                attributes[name] = plain(value)
            elif given and len(tensors) == 1 and tensors[0].device.type == "cpu" and not tensors[0].dim():
                # A number on the CPU is no operand of the IR but a constant in it.
                attributes[name] = tensors[0].item()
        return cls(tuple(operands), attributes)


def value_of(tensor: torch.Tensor) -> Value:
    return Value(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


# What the capture knows of lazy values: who made each, and what the script calls it.

SAME = ("alias_copy", "detach_copy")
"""Ops whose result is their argument: the core keeps a tensor and what it was detached from as two values."""


class KnownValues:
    """Values by the lazy core's number: what made each, what the script calls it, and its name in the graph that
    has computed it. A number is never used again, so nothing is forgotten."""

    def __init__(self, number_of: NumberOf) -> None:
        self.number_of = number_of
        self.calls: dict[int, FollowedCall] = {}
        self.makers: dict[int, FollowedCall] = {}
        self.bindings: dict[int, str] = {}
        self.executed: dict[int, str] = {}
        self._same: dict[int, list[int]] = {}

    def name(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Say what the script calls the values that these tensors have now."""
        for binding, tensor in tensors.items():
            number = self.number_of(tensor)
            if number is not None:
                self.bindings.setdefault(number, binding)

    def numbers_in(self, outputs: Any) -> list[int]:
        """The numbers of the tensors that a call has returned."""
        return [number for one in tensors_in(outputs) if (number := self.number_of(one)) is not None]

    def made(self, call: FollowedCall) -> None:
        """Take a call that has run."""
        for number in call.made:
            self.makers[number] = call
        given = call.operands[0].tensor if call.operands else None
        if call.place.op in SAME and given is not None and call.made:
            self._same.setdefault(call.made[0], []).append(given)
            self._same.setdefault(given, []).append(call.made[0])

    def binding(self, number: int) -> str:
        """What the script calls a value, or the one that it is the same as; "" for one that it has no name for."""
        # The value itself, then all that are the same as it, nearest first
        met, waiting = {number}, [number]
        while waiting:
            one = waiting.pop(0)
            if one in self.bindings:
                return self.bindings[one]
            following = [other for other in self._same.get(one, ()) if other not in met]
            met.update(following)
            waiting += following
        return ""

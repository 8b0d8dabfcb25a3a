"""Every kernel call of the lazy core, and the mark by which the nodes that it makes are known again.

Each new lazy node notes the innermost Python frame. Every kernel is called from a frame of its own whose name is
the number of the call, so the dump of a graph says of each node which call made it, in the backward and inside of
swapped kernels, too. Neither nodes nor hashes change by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ... import torch_private
from ...records.graph_record import Node

FRAME = "numdrift"
"""The file name of the frames that kernels are called from."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One value that a kernel is given: `tensor` is the lazy core's number of it, None for a number."""

    name: str
    tensor: int | None


@dataclass(slots=True)
class Call:
    """One call of a kernel. `place` has the op, phase, module, source, stack and sequence, `attributes` included.

    `parent` is the call that it was made inside of; `made` are the lazy core's numbers of its results.
    `is_setup` says that no model had been called yet, `is_reading` that it is no op of the training: a recorder reads
    a value; `step` is the step in which it was.
    """

    number: int
    step: int
    place: Node
    operands: tuple[Operand, ...] = ()
    parent: int | None = None
    is_setup: bool = False
    is_reading: bool = False
    made: list[int] = field(default_factory=list)


class LazyKernels:
    """The kernels of the lazy core replaced by ones that show each call, until `close`.

    `before` is asked for the record of a call before it runs (None: nobody wants it), `after` is given that and the
    outputs. Neither may raise. Not to be closed from within a call.
    """

    def __init__(
        self,
        before: Callable[[Any, Sequence[Any], Mapping[str, Any]], Call | None],
        after: Callable[[Call, Any], None],
    ) -> None:
        self._before = before
        self._after = after
        self._overrides = torch_private.Overrides()
        for operation, kernel in torch_private.lazy_kernels().items():
            self._overrides.replace(operation, torch_private.LAZY_KEY, self._shown(operation, kernel))

    def close(self) -> None:
        self._overrides.close()

    def _shown(self, operation: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
        kinds = [one.kind for one in torch_private.arguments_of(operation)]
        tensors = [kind in ("Tensor", "Optional[Tensor]") for kind in kinds]

        def called(*args: Any, **kwargs: Any) -> Any:
            args = tuple(_tensor(one) if tensor else one for one, tensor in zip(args, tensors, strict=False))
            call = self._before(operation, args, kwargs)
            if call is None:
                return kernel(*args, **kwargs)
            outputs = None
            try:
                outputs = named_frame(str(call.number))(kernel, args, kwargs)
            finally:
                self._after(call, outputs)
            return outputs

        return called


def _tensor(value: Any) -> Any:
    """A number in a tensor's place as the tensor that torch had made of it."""
    return torch_private.wrapped_number(value) if isinstance(value, (bool, int, float, complex)) else value


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return function(*args, **kwargs)


_CODE = _call.__code__


def named_frame(name: str) -> Callable[..., Any]:
    """What calls a function from a frame of this name."""
    code = _CODE.replace(co_name=name, co_qualname=name, co_filename=FRAME)
    return FunctionType(code, _call.__globals__)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What an op was called with: the values that its kernel is given, and the rest as attributes."""

    operands: tuple[Operand, ...]
    attributes: dict[str, Any]

    @classmethod
    def of(cls, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        operands: list[Operand] = []
        attributes: dict[str, Any] = {}
        for name, kind, value, given in _bound(operation, args, kwargs):
            tensors = list(tensors_in(value))
            operands += [Operand(name, number_of(one)) for one in tensors]
            if "number" in kind and value is not None:
                operands.append(Operand(name, None))
            if given and value is not None and not tensors:
                attributes[name] = plain(value)
            elif given and len(tensors) == 1 and tensors[0].device.type == "cpu" and not tensors[0].dim():
                attributes[name] = tensors[0].item()
        return cls(tuple(operands), attributes)


def _bound(
    operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any, bool]]:
    """Name, kind and value of each argument in the order of the schema, and whether the call gave it."""
    schema = torch_private.schema_of(operation)
    for position, one in enumerate(schema.arguments):
        if position < len(args):
            yield one.name, str(one.type), args[position], True
        elif one.name in kwargs:
            yield one.name, str(one.type), kwargs[one.name], True
        else:
            yield one.name, str(one.type), one.default_value, False


def number_of(tensor: torch.Tensor) -> int | None:
    """The lazy core's number of a tensor, None for a tensor of another device."""
    return torch_private.lazy_tensor_id(tensor) if tensor.device.type == "lazy" else None


def plain(value: Any) -> Any:
    """An argument as the record holds it: numbers and lists of them as they are, anything else as text."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, (bool, int, float)) for one in value):
        return list(value)
    return str(value).removeprefix("torch.")

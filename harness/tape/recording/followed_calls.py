"""Pass each call of an op to a consumer before and after it runs, and describe the call.

A call is caught by a dispatch mode (`FollowedOps`), or by a function that replaces a device's kernel (see
`backends.followed_kernels`). Both pass the call to the consumer through `CallConsumer.follow`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch

from ...torch_private.dispatching import InterceptedOps, is_operation_overload
from ...torch_private.operators import is_random, written_values
from ..tape import leaves

IDLE = ("profiler", "prim")
"""The namespaces of the ops that profilers and TorchScript insert. These ops compute nothing."""


@dataclass(slots=True, eq=False)
class OpCall:
    """A call of an op. Its properties are computed only when a consumer reads them.

    It is not frozen: setting the fields of a frozen instance takes a microsecond, and a step has thousands of calls.

    operation: the op's overload, or a higher-order operator.
    grad: the grad mode in which the op was called.
    """

    operation: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grad: bool = False
    _values: list[Any] | None = field(default=None, init=False, repr=False)
    _tensors: list[torch.Tensor] | None = field(default=None, init=False, repr=False)

    @property
    def values(self) -> Sequence[Any]:
        """The arguments, with each list replaced with its elements."""
        if self._values is None:
            values: list[Any] = []
            for value in (*self.args, *self.kwargs.values()):
                if isinstance(value, (list, tuple)):
                    values.extend(leaves(value))
                else:
                    values.append(value)
            self._values = values
        return self._values

    @property
    def tensors(self) -> Sequence[torch.Tensor]:
        """The tensors among the arguments."""
        if self._tensors is None:
            self._tensors = [value for value in self.values if isinstance(value, torch.Tensor)]
        return self._tensors

    @property
    def written(self) -> list[torch.Tensor]:
        """The tensors that the op writes to."""
        values = written_values(self.operation, self.args, self.kwargs)
        return [value for value in values if isinstance(value, torch.Tensor)]

    @property
    def device_types(self) -> set[str]:
        """The types of the devices that the arguments name or are on."""
        placed = [value for value in self.values if isinstance(value, (torch.Tensor, torch.device))]
        return {(value if isinstance(value, torch.device) else value.device).type for value in placed}

    @property
    def is_overload(self) -> bool:
        """Return whether the op is an overload that the dispatcher knows, not a higher-order operator."""
        return is_operation_overload(self.operation)

    @property
    def is_differentiable(self) -> bool:
        """Return whether an argument requires a gradient."""
        return any(tensor.requires_grad for tensor in self.tensors)

    @property
    def is_random(self) -> bool:
        """Return whether the op may draw random numbers."""
        return is_random(self.operation)

    def run(self, note: Any = None) -> Any:
        """Execute the call. `note` is the consumer's note for it, if there is one."""
        return self.operation(*self.args, **self.kwargs)


Call = TypeVar("Call", bound=OpCall)
Note = TypeVar("Note")


@dataclass(frozen=True, slots=True)
class CallConsumer(Generic[Call, Note]):
    """The functions that receive each call. None of them may raise.

    before: takes a call before it runs. Returns a note for the other two functions, or None to ignore the call.
    after: takes the note and the results.
    failed: takes the note and the error that the call has raised.
    """

    before: Callable[[Call], Note | None]
    after: Callable[[Note, Any], None]
    failed: Callable[[Note, BaseException], None] | None = None

    def follow(self, call: Call) -> Any:
        """Execute a call unchanged, and pass it to the consumer before and after it runs."""
        note = self.before(call)
        if note is None:
            return call.run()
        try:
            outputs = call.run(note)
        except BaseException as error:
            if self.failed is not None:
                self.failed(note, error)
            raise
        self.after(note, outputs)
        return outputs


class FollowedOps(InterceptedOps):
    """A dispatch mode that passes each op to a consumer, except ops that compute nothing."""

    def __init__(
        self,
        before: Callable[[OpCall], Note | None],
        after: Callable[[Note, Any], None],
        failed: Callable[[Note, BaseException], None] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._consumer = CallConsumer(before, after, failed)

    def around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if operation.namespace in IDLE:
            return operation(*args, **kwargs)
        return self._consumer.follow(OpCall(operation, args, kwargs, torch.is_grad_enabled()))

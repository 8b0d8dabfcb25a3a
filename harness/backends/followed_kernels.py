"""A device's kernels, each replaced by a function that hands its calls to a consumer and calls the kernel.

The dispatcher calls these functions below autograd, for each op that reaches the device. Every call of a kernel is made
from a frame of its own, which is named after the number of the call. Each new node of torch's lazy core notes the
innermost Python frame. A graph's dump therefore shows which call made each node, even in the backward and in swapped
kernels. XLA's dump has the line of the frame in place of its name, so the frame's line identifies the call too. The
frames change neither nodes nor hashes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any, Protocol, TypeVar

import torch

from ..tape.origin import CALLED_FROM
from ..tape.recording.followed_calls import CallConsumer, OpCall
from ..torch_private.device_kernels import DeviceKernel
from ..torch_private.registered_kernels import Overrides


class Numbered(Protocol):
    """The note of a call, which identifies the call by a number."""

    @property
    def number(self) -> int: ...


Note = TypeVar("Note", bound=Numbered)


@dataclass(slots=True, eq=False, kw_only=True)
class KernelCall(OpCall):
    """A call of a device's kernel.

    args: the arguments. A number passed where the kernel takes a tensor is replaced by the tensor that torch makes of
        it.
    passed: the arguments as the dispatcher passes them.
    caller: the frame that made the call, None in a thread of the device.
    """

    kernel: DeviceKernel
    passed: tuple[Any, ...]
    caller: FrameType | None

    def run(self, note: Numbered | None = None) -> Any:
        """Call the kernel, from a frame that is named after the note's number."""
        if note is None:
            return self.kernel.call(*self.args, **self.kwargs)
        return named_frame(str(note.number), note.number)(self.kernel.call, self.args, self.kwargs)


class FollowedKernels:
    """The functions that replace the `kernels` of the dispatch key `key`, until `close`.

    `before`, `after` and `failed` are those of a `CallConsumer`. Do not call `close` from within a call.
    """

    def __init__(
        self,
        kernels: Iterable[DeviceKernel],
        key: str,
        before: Callable[[KernelCall], Note | None],
        after: Callable[[Note, Any], None],
        failed: Callable[[Note, BaseException], None],
    ) -> None:
        self._consumer = CallConsumer(before, after, failed)
        self._overrides = Overrides()
        for kernel in list(kernels):
            self._overrides.replace(kernel.operation, key, self._followed(kernel))

    def close(self) -> None:
        self._overrides.close()

    def _followed(self, kernel: DeviceKernel) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            inputs, caller, grad = kernel.inputs(args), sys._getframe().f_back, torch.is_grad_enabled()
            return self._consumer.follow(
                KernelCall(kernel.operation, inputs, kwargs, grad, kernel=kernel, passed=args, caller=caller)
            )

        return called


def _call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return function(*args, **kwargs)


_CODE = _call.__code__


def named_frame(name: str, line: int = 1) -> Callable[..., Any]:
    """Return a function that calls a given function from a frame of this name, on the line after `line`."""
    code = _CODE.replace(co_name=name, co_qualname=name, co_filename=CALLED_FROM, co_firstlineno=line)
    return FunctionType(code, _call.__globals__)


def call_on(line: int) -> int:
    """Return the number of the call whose frame is on this line."""
    return line - 1

"""Support of operators that a device is given one by one, by the dispatcher: lazy tensors, torch_xla.

Every kernel of the device is called through this observer. What the device's own counter of fallbacks says
before and after the call decides; what the call has added to the pending graph are its instructions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..records.backend_work import OperatorCall
from ..torch_private.device_kernels import DeviceKernel, device_kernels
from ..torch_private.dispatching import Overrides
from ..torch_private.lazy_graphs import wrapped_number
from .called_operators import ScriptLines, configuration, instruction, is_called_by_harness, tensors_among

COPIES = ("aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::_copy_from_and_resize")
"""Ops that bring values to a device or from it, which says nothing of what the device can compute."""


@dataclass(frozen=True, slots=True)
class Added:
    """What a call has given, and the instructions that it has added to the pending graph. `reason` says why
    the backend cannot lower them, "" where it can."""

    outputs: Any
    instructions: tuple[str, ...] = ()
    reason: str = ""


class KernelCall:
    """One call of a kernel, and how it went. A number in a tensor's place is given to the kernel as torch had
    made it."""

    def __init__(self, kernel: DeviceKernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.done = self.failed = False
        self.outputs: Any = None
        self.kernel = kernel
        given = zip(args, kernel.tensors, strict=False)
        self._args = [_as_tensor(one) if is_tensor else one for one, is_tensor in given]
        self._kwargs = kwargs

    def instruction(self, args: Sequence[Any], device: str) -> str:
        """The call as one instruction, for a backend that has none of its own to show."""
        text = configuration(self.kernel.operation, args, self._kwargs, device)
        return instruction(self.kernel.name.partition(".")[0], self.outputs, text)

    def run(self, frame: Callable[..., Any] | None = None) -> Any:
        """Execute the kernel; `frame(function, args, kwargs)` does it where it is given."""
        self.failed = True
        if frame is None:
            self.outputs = self.kernel.call(*self._args, **self._kwargs)
        else:
            self.outputs = frame(self.kernel.call, self._args, self._kwargs)
        self.done, self.failed = True, False
        return self.outputs


@dataclass(frozen=True, slots=True)
class DeviceBackend:
    """A device as the observer asks it. `key` is its dispatch key, `part` what is to blame where it fails.

    `fallbacks` counts the executions of an op on the CPU, by its full name. `added` runs a call, whose
    arguments it is given, too, and asks what that has added to the pending graph.
    """

    key: str
    device: str
    part: str
    fallbacks: Callable[[str], int]
    added: Callable[[KernelCall, Sequence[Any]], Added]


@dataclass(slots=True)
class _Call:
    kernel: DeviceKernel
    configuration: str
    line: str
    is_told: bool = True


@contextmanager
def observe_device(backend: DeviceBackend, script: str, told: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Within the context `told` hears of each operator that the device is given. Raises what has failed in
    here."""
    observer = _Observer(backend, ScriptLines(script), told)
    overrides = Overrides()
    try:
        for kernel in list(device_kernels(backend.key)):
            overrides.replace(kernel.operation, backend.key, observer.around(kernel))
        yield
    finally:
        overrides.close()
    if observer.error is not None:
        raise observer.error


class _Observer:
    """Follows the calls; `error` is what has failed in here, from when on calls go past."""

    def __init__(self, backend: DeviceBackend, lines: ScriptLines, told: Callable[[OperatorCall], None]) -> None:
        self.error: Exception | None = None
        self._backend = backend
        self._lines = lines
        self._told = told
        self._within: list[_Call] = []
        self._known: dict[tuple[str, str], Added] = {}

    def around(self, kernel: DeviceKernel) -> Callable[..., Any]:
        """What is called in place of a kernel."""

        def called(*args: Any, **kwargs: Any) -> Any:
            once = KernelCall(kernel, args, kwargs)
            if self.error is not None or self._is_none_of_ours():
                return once.run()
            return self._observed(once, args, kwargs)

        return called

    def _is_none_of_ours(self) -> bool:
        """Whether what is called is part of a fallback, or done by the harness itself."""
        if self._within:
            return self._within[-1].kernel.is_fallback
        return is_called_by_harness([__file__])

    def _observed(self, once: KernelCall, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        before = self._try(lambda: self._begin(once.kernel, args, kwargs))
        if before is None:
            return once.run()
        call, fallbacks = before
        self._within.append(call)
        try:
            added = self._executed(call, once, args)
        except Exception as error:
            self._within.pop()
            self._try(functools.partial(self._failed, call, args, kwargs, error))
            raise
        self._within.pop()
        self._try(lambda: self._ended(call, args, added, fallbacks))
        return added.outputs

    def _begin(self, kernel: DeviceKernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Call, int]:
        text = configuration(kernel.operation, args, kwargs, self._backend.device)
        line = self._within[0].line if self._within else self._lines.here()
        return _Call(kernel, text, line), self._backend.fallbacks(kernel.name)

    def _executed(self, call: _Call, once: KernelCall, args: Sequence[Any]) -> Added:
        """The result, and the instructions; these are asked for once for each configuration."""
        known = self._known.get((call.kernel.name, call.configuration))
        if known is not None:
            return replace(known, outputs=once.run())
        if call.kernel.is_fallback or len(self._within) > 1:
            return Added(once.run())
        try:
            return self._backend.added(once, args)
        except Exception as error:
            if once.failed:
                raise
            self.error = self.error or error  # the op is none the worse for what fails in here
            return Added(once.outputs if once.done else once.run())

    def _ended(self, call: _Call, args: Sequence[Any], added: Added, fallbacks: int) -> None:
        name, kind = call.kernel.name, call.kernel.name.partition(".")[0]
        outputs = added.outputs
        if call.kernel.is_read or _is_transfer(call.kernel, args, outputs):
            return
        if call.kernel.is_fallback or self._backend.fallbacks(name) > fallbacks:
            made = instruction(kind, outputs, call.configuration)
            self._tell(call, (made,), self._reason(outputs))
        elif not self._within and call.is_told:
            self._known[name, call.configuration] = replace(added, outputs=None)
            self._tell(call, added.instructions, added.reason)

    def _reason(self, outputs: Any) -> str:
        device = self._backend.device
        reason = "no kernel of the backend: executed on the CPU, which cuts the graph"
        if any(one.device.type != device for one in tensors_among(outputs)):
            return f"{reason}; its results stay on the CPU, where the next operator looks for {device} tensors"
        return reason

    def _failed(self, call: _Call, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
        kind = call.kernel.name.partition(".")[0]
        if call.is_told and not _fails_anywhere(call.kernel.operation, args, kwargs):
            text = (str(error).splitlines() or [type(error).__name__])[0]
            self._tell(call, (instruction(kind, (), call.configuration),), text)
        for outer in self._within:
            outer.is_told = False

    def _tell(self, call: _Call, instructions: tuple[str, ...], reason: str) -> None:
        """Tell of a call; those that it was made within are done by it, and not told of where it is
        unsupported."""
        kind = call.kernel.name.partition(".")[0]
        part = self._backend.part if reason else ""
        self._told(OperatorCall(kind, call.configuration, call.line, instructions, part, reason))
        for outer in self._within if reason else ():
            outer.is_told = False

    def _try(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except Exception as error:  # noqa: BLE001, the op goes on whatever fails here
            self.error = self.error or error
            return None


def _as_tensor(value: Any) -> Any:
    """A number as the tensor that torch makes of it, which takes part in type promotion weakly."""
    return wrapped_number(value) if isinstance(value, (bool, int, float, complex)) else value


def _is_transfer(kernel: DeviceKernel, args: Sequence[Any], outputs: Any) -> bool:
    """Whether a call only moves values from one device to another."""
    devices = {one.device.type for one in (*tensors_among(args), *tensors_among(outputs))}
    return len(devices) > 1 and kernel.name in COPIES


def _fails_anywhere(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the op refuses such arguments on the CPU, too: shapes that do not fit are no lack of
    support."""

    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.zeros(value.shape, dtype=value.dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(map(moved, value))
        return torch.device("cpu") if isinstance(value, torch.device) else value

    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            operation(*moved(args), **{name: moved(value) for name, value in kwargs.items()})
    except Exception:  # noqa: BLE001, whatever it says of the arguments
        return True
    return False

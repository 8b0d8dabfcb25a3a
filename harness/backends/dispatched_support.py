"""Support of operators that a device is given one by one, by the dispatcher: lazy tensors, torch_xla.

Every kernel of the device is called through this observer. What the device's own counter of fallbacks says
before and after the call decides; what the call has added to the pending graph are its instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ..records.backend_work import OperatorCall
from ..script.main_module import said_by
from ..torch_private.dispatching import Overrides
from ..torch_private.lazy import wrapped_number
from ..torch_private.operators import DeviceKernel, device_kernels
from .called_operators import KeptFailure, ScriptLines, configuration, instruction, is_called_by_harness

COPIES = ("aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::_copy_from_and_resize")
"""Ops that bring values to a device or from it, which says nothing of what the device can compute."""

BOOKKEEPING = ("aten::_propagate_xla_data",)
"""Ops that a backend calls for itself, of no training."""


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
        self._args = [as_tensor(one) if is_tensor else one for one, is_tensor in given]
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
    fallbacks: int
    is_told: bool = True


@contextmanager
def observe_device(backend: DeviceBackend, script: str, told: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Within the context `told` hears of each operator that the device is given. Raises what has failed in here."""
    observer = _Observer(backend, ScriptLines(script), told)
    overrides = Overrides()
    try:
        for kernel in list(device_kernels(backend.key)):
            overrides.replace(kernel.operation, backend.key, observer.around(kernel))
        yield
    finally:
        overrides.close()
    observer.kept.tell()


class _Observer:
    """Follows the calls. What fails in here is `kept`, and from then on calls go past."""

    def __init__(self, backend: DeviceBackend, lines: ScriptLines, told: Callable[[OperatorCall], None]) -> None:
        self.kept = KeptFailure()
        self._backend = backend
        self._lines = lines
        self._told = told
        self._within: list[_Call] = []
        self._known: dict[tuple[str, str], Added] = {}

    def around(self, kernel: DeviceKernel) -> Callable[..., Any]:
        """What is called in place of a kernel."""

        def called(*args: Any, **kwargs: Any) -> Any:
            once = KernelCall(kernel, args, kwargs)
            if self.kept.error is not None:
                return once.run()
            # What a fallback calls is part of it, and what the harness itself calls is not the training's.
            if self._within[-1].kernel.is_fallback if self._within else is_called_by_harness([__file__]):
                return once.run()
            call = None
            with self.kept:
                text = configuration(kernel.operation, args, kwargs, self._backend.device)
                line = self._within[0].line if self._within else self._lines.here()
                call = _Call(kernel, text, line, self._backend.fallbacks(kernel.name))
            if call is None:
                return once.run()
            self._within.append(call)
            try:
                # The instructions are asked for once for each configuration.
                known = self._known.get((kernel.name, call.configuration))
                if known is not None:
                    added = replace(known, outputs=once.run())
                elif kernel.is_fallback or len(self._within) > 1:
                    added = Added(once.run())
                else:
                    try:
                        added = self._backend.added(once, args)
                    except Exception as error:
                        if once.failed:
                            raise
                        self.kept.error = self.kept.error or error  # the op is none the worse for what fails in here
                        added = Added(once.outputs if once.done else once.run())
            except Exception as error:
                self._within.pop()
                with self.kept:
                    self._failed(call, args, kwargs, error)
                raise
            self._within.pop()
            with self.kept:
                self._ended(call, args, added)
            return added.outputs

        return called

    def _ended(self, call: _Call, args: Sequence[Any], added: Added) -> None:
        name, device = call.kernel.name, self._backend.device
        made = list(tensors_in(added.outputs))
        devices = {one.device.type for one in (*tensors_in(args), *made)}
        # A value that is read, or only moved from one device to another, says nothing of what the device can do.
        if call.kernel.is_read or name in BOOKKEEPING or (len(devices) > 1 and name in COPIES):
            return
        if call.kernel.is_fallback or self._backend.fallbacks(name) > call.fallbacks:
            reason = "no kernel of the backend: executed on the CPU, which cuts the graph"
            if any(one.device.type != device for one in made):
                reason += f"; its results stay on the CPU, where the next operator looks for {device} tensors"
            text = instruction(name.partition(".")[0], added.outputs, call.configuration)
            self._tell(call, (text,), reason)
        elif not self._within and call.is_told:
            self._known[name, call.configuration] = replace(added, outputs=None)
            self._tell(call, added.instructions, added.reason)

    def _failed(self, call: _Call, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
        """Tell of a call that has raised, unless the CPU refuses such arguments, too: shapes that do not fit are no
        lack of support."""

        def moved(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return torch.zeros(value.shape, dtype=value.dtype)
            if isinstance(value, (list, tuple)):
                return type(value)(map(moved, value))
            return torch.device("cpu") if isinstance(value, torch.device) else value

        fails_anywhere = False
        if call.is_told:
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    call.kernel.operation(*moved(args), **{name: moved(value) for name, value in kwargs.items()})
            except Exception:  # noqa: BLE001, whatever it says of the arguments
                fails_anywhere = True
        if call.is_told and not fails_anywhere:
            text = said_by(error) or type(error).__name__
            self._tell(call, (instruction(call.kernel.name.partition(".")[0], (), call.configuration),), text)
        # What it was called by fails by it, and is not told of besides.
        for outer in self._within:
            outer.is_told = False

    def _tell(self, call: _Call, instructions: tuple[str, ...], reason: str) -> None:
        """Tell of a call; those that it was made within are done by it, and not told of where it is unsupported."""
        kind = call.kernel.name.partition(".")[0]
        part = self._backend.part if reason else ""
        self._told(OperatorCall(kind, call.configuration, call.line, instructions, part, reason))
        for outer in self._within if reason else ():
            outer.is_told = False


def as_tensor(value: Any) -> Any:
    """A number as the tensor that torch makes of it, which takes part in type promotion weakly."""
    return wrapped_number(value) if isinstance(value, (bool, int, float, complex)) else value

"""Support of operators on devices that the dispatcher calls op by op: lazy tensors, torch_xla.

Every kernel of the device is called through this observer. The device's own counter of fallbacks is read before and
after the call. If it grew, the device does not support the call. The nodes that the call adds to the pending graph are
its instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ..records.tools.backend_work import OperatorCall
from ..script.main_module import said_by
from ..script.script_lines import ScriptLines
from ..torch_private.deferred.lazy import wrapped_number
from ..torch_private.operators import DeviceKernel, device_kernels
from ..torch_private.registered_kernels import Overrides
from .called_operators import KeptFailure, configuration, instruction, is_called_by_harness

COPIES = ("aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::_copy_from_and_resize")
"""Ops that move values to or from a device. They do not show whether the device can compute an op."""

BOOKKEEPING = ("aten::_propagate_xla_data",)
"""Ops that a backend calls for its own purposes. They belong to no training."""


@dataclass(frozen=True, slots=True)
class Added:
    """The outputs of a call, and the instructions that it has added to the pending graph.

    `reason` says why the backend cannot lower them, "" if it can.
    """

    outputs: Any
    instructions: tuple[str, ...] = ()
    reason: str = ""


class KernelCall:
    """One call of a kernel, and its outcome.

    A number passed where the kernel takes a tensor becomes the tensor that torch makes of it.
    """

    def __init__(self, kernel: DeviceKernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.done = self.failed = False
        self.outputs: Any = None
        self.kernel = kernel
        pairs = zip(args, kernel.tensors, strict=False)
        self._args = [as_tensor(value) if is_tensor else value for value, is_tensor in pairs]
        self._kwargs = kwargs

    def instruction(self, args: Sequence[Any], device: str) -> str:
        """Return the call as one instruction, for a backend that has no text for it."""
        text = configuration(self.kernel.operation, args, self._kwargs, device)
        return instruction(self.kernel.name.partition(".")[0], self.outputs, text)

    def run(self, frame: Callable[..., Any] | None = None) -> Any:
        """Execute the kernel, through `frame(function, args, kwargs)` if there is a `frame`."""
        self.failed = True
        if frame is None:
            self.outputs = self.kernel.call(*self._args, **self._kwargs)
        else:
            self.outputs = frame(self.kernel.call, self._args, self._kwargs)
        self.done, self.failed = True, False
        return self.outputs


@dataclass(frozen=True, slots=True)
class DeviceBackend:
    """The part of a device that the observer needs.

    key: its dispatch key.
    part: the component that a failure is attributed to.
    fallbacks: returns how often an op, by its full name, was executed on the CPU.
    added: takes a call and its arguments, runs the call, and returns its outputs and the instructions that it added.
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
def observe_device(backend: DeviceBackend, script: str, report: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Report each operator that the device executes within the context. Raise the observer's own failure at the end."""
    observer = _Observer(backend, ScriptLines(script), report)
    overrides = Overrides()
    try:
        for kernel in list(device_kernels(backend.key)):
            overrides.replace(kernel.operation, backend.key, observer.around(kernel))
        yield
    finally:
        overrides.close()
    observer.kept.tell()


class _Observer:
    """The observer of the calls. Its first failure is in `kept`; from then on calls pass unobserved."""

    def __init__(self, backend: DeviceBackend, lines: ScriptLines, report: Callable[[OperatorCall], None]) -> None:
        self.kept = KeptFailure()
        self._backend = backend
        self._lines = lines
        self._told = report
        self._within: list[_Call] = []
        self._known: dict[tuple[str, str], Added] = {}

    def around(self, kernel: DeviceKernel) -> Callable[..., Any]:
        """Return the function that is called in place of a kernel."""

        def called(*args: Any, **kwargs: Any) -> Any:
            kernel_call = KernelCall(kernel, args, kwargs)
            if self.kept.error is not None:
                return kernel_call.run()
            # Calls within a fallback are part of the fallback. Calls of the harness are not the training's.
            if self._within[-1].kernel.is_fallback if self._within else is_called_by_harness([__file__]):
                return kernel_call.run()
            call = None
            with self.kept:
                text = configuration(kernel.operation, args, kwargs, self._backend.device)
                line = self._within[0].line if self._within else self._lines.here()
                call = _Call(kernel, text, line, self._backend.fallbacks(kernel.name))
            if call is None:
                return kernel_call.run()
            self._within.append(call)
            try:
                # The instructions are read only once for each configuration.
                cached = self._known.get((kernel.name, call.configuration))
                if cached is not None:
                    added = replace(cached, outputs=kernel_call.run())
                elif kernel.is_fallback or len(self._within) > 1:
                    added = Added(kernel_call.run())
                else:
                    try:
                        added = self._backend.added(kernel_call, args)
                    except Exception as error:
                        if kernel_call.failed:
                            raise
                        self.kept.error = self.kept.error or error  # the op runs whatever fails in the observer
                        added = Added(kernel_call.outputs if kernel_call.done else kernel_call.run())
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
        devices = {tensor.device.type for tensor in (*tensors_in(args), *made)}
        # Reading a value, or moving it from one device to another, does not show what the device can compute.
        if call.kernel.is_read or name in BOOKKEEPING or (len(devices) > 1 and name in COPIES):
            return
        if call.kernel.is_fallback or self._backend.fallbacks(name) > call.fallbacks:
            reason = "no kernel of the backend: executed on the CPU, which cuts the graph"
            if any(tensor.device.type != device for tensor in made):
                reason += f"; its results stay on the CPU, where the next operator looks for {device} tensors"
            text = instruction(name.partition(".")[0], added.outputs, call.configuration)
            self._tell(call, (text,), reason)
        elif not self._within and call.is_told:
            self._known[name, call.configuration] = replace(added, outputs=None)
            self._tell(call, added.instructions, added.reason)

    def _failed(self, call: _Call, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
        """Report a call that has raised, unless the CPU refuses such arguments too.

        Shapes that do not fit, for example, are no lack of support.
        """

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
        # The calls around it fail because of it, and are not reported.
        for outer in self._within:
            outer.is_told = False

    def _tell(self, call: _Call, instructions: tuple[str, ...], reason: str) -> None:
        """Report a call. If it is unsupported, the calls around it are not reported as well."""
        kind = call.kernel.name.partition(".")[0]
        part = self._backend.part if reason else ""
        self._told(OperatorCall(kind, call.configuration, call.line, instructions, part, reason))
        for outer in self._within if reason else ():
            outer.is_told = False


def as_tensor(value: Any) -> Any:
    """Return a number as the tensor that torch makes of it, which takes part in type promotion weakly."""
    return wrapped_number(value) if isinstance(value, (bool, int, float, complex)) else value

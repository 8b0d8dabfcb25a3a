"""Find which operators a device supports, if the dispatcher calls its kernels op by op: lazy tensors, torch_xla.

Every kernel of the device is called through this observer. The device's own counter of fallbacks is read before and
after each call. If it grew, the device does not support the call. The nodes that a call adds to the pending graph are
the call's instructions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ..records.tools.backend_work import OperatorCall
from ..script.main_module import message_of
from ..script.script_lines import ScriptLines
from ..torch_private.device_kernels import device_kernels
from .called_operators import KeptFailure, configuration, instruction, is_called_by_harness
from .followed_kernels import FollowedKernels, KernelCall

COPIES = ("aten::copy_", "aten::_to_copy", "aten::_copy_from", "aten::_copy_from_and_resize")
"""Ops that move values to or from a device. They do not show whether the device can compute an op."""

BOOKKEEPING = ("aten::_propagate_xla_data",)
"""Ops that a backend calls for its own purposes. They are not part of the training."""


@dataclass(frozen=True, slots=True)
class Added:
    """The instructions that a call has added to the pending graph.

    `reason` says why the backend cannot lower them, "" if it can.
    """

    instructions: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class ObservedCall:
    """A call that is about to run.

    line: the script's line.
    fallbacks: how often the op had been executed on the CPU before the call.
    is_new: True if the call's instructions are read: the call is the first one with its configuration, and is not made
        within another call.
    before: the result of `DeviceBackend.before`, for a new call.
    is_told: False once a call within this call has failed or has been reported as unsupported. The success or failure
        of this call is then not reported.
    """

    number: int
    call: KernelCall
    configuration: str
    line: str
    fallbacks: int
    is_new: bool
    before: Any = None
    is_told: bool = True

    @property
    def kind(self) -> str:
        """The op's name in reports."""
        return self.call.kernel.name.partition(".")[0]

    def instruction(self, outputs: Any) -> str:
        """Return the call as one instruction, for a backend that has no text for it."""
        return instruction(self.kind, outputs, self.configuration)


@dataclass(frozen=True, slots=True)
class DeviceBackend:
    """The facts about a device that the observer needs.

    key: the device's dispatch key.
    part: the component that a failure is attributed to.
    fallbacks: takes the full name of an op, and returns how often the op was executed on the CPU.
    before: takes the arguments of a new call before it runs, and returns the data that `added` needs.
    added: takes a new call that has run, and its outputs; returns the instructions that the call added.
    """

    key: str
    device: str
    part: str
    fallbacks: Callable[[str], int]
    before: Callable[[Sequence[Any]], Any]
    added: Callable[[ObservedCall, Any], Added]


@contextmanager
def observe_device(backend: DeviceBackend, script: str, report: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Report each operator that the device executes within the context. Raise the observer's own failure at the end."""
    observer = _Observer(backend, ScriptLines(script), report)
    kernels = FollowedKernels(
        device_kernels(backend.key), backend.key, observer.before, observer.after, observer.failed
    )
    try:
        yield
    finally:
        kernels.close()
    observer.kept.tell()


_numbers = itertools.count(1)


class _Observer:
    """The observer of the calls. Its first failure is in `kept`; from then on calls pass unobserved."""

    def __init__(self, backend: DeviceBackend, lines: ScriptLines, report: Callable[[OperatorCall], None]) -> None:
        self.kept = KeptFailure()
        self._backend = backend
        self._lines = lines
        self._report = report
        self._within: list[ObservedCall] = []
        self._added: dict[tuple[str, str], Added] = {}

    def before(self, call: KernelCall) -> ObservedCall | None:
        if self.kept.error is not None:
            return None
        # Calls within a fallback are part of the fallback. Calls made by the harness are not part of the training.
        if self._within[-1].call.kernel.is_fallback if self._within else is_called_by_harness([__file__]):
            return None
        kernel = call.kernel
        with self.kept:
            text = configuration(kernel.operation, call.passed, call.kwargs, self._backend.device)
            line = self._within[0].line if self._within else self._lines.here()
            # The instructions are read only once for each configuration.
            is_new = not (kernel.is_fallback or self._within or (kernel.name, text) in self._added)
            before = self._backend.before(call.passed) if is_new else None
            fallbacks = self._backend.fallbacks(kernel.name)
            self._within.append(ObservedCall(next(_numbers), call, text, line, fallbacks, is_new, before))
            return self._within[-1]
        return None

    def after(self, observed: ObservedCall, outputs: Any) -> None:
        added = Added()
        with self.kept:
            if observed.is_new and self.kept.error is None:
                added = self._backend.added(observed, outputs)
        self._within.pop()
        with self.kept:
            self._ended(observed, outputs, self._added.get((observed.call.kernel.name, observed.configuration), added))

    def failed(self, observed: ObservedCall, error: BaseException) -> None:
        self._within.pop()
        if isinstance(error, Exception):
            with self.kept:
                self._report_failure(observed, error)

    def _ended(self, observed: ObservedCall, outputs: Any, added: Added) -> None:
        kernel, device = observed.call.kernel, self._backend.device
        made = list(tensors_in(outputs))
        devices = {tensor.device.type for tensor in (*tensors_in(observed.call.passed), *made)}
        # Reading a value, or moving it from one device to another, does not show what the device can compute.
        if kernel.is_read or kernel.name in BOOKKEEPING or (len(devices) > 1 and kernel.name in COPIES):
            return
        if kernel.is_fallback or self._backend.fallbacks(kernel.name) > observed.fallbacks:
            reason = "the backend has no kernel: the CPU executes the operator, which cuts the graph"
            if any(tensor.device.type != device for tensor in made):
                reason += f"; its results stay on the CPU, while the next operator expects {device} tensors"
            self._tell(observed, (observed.instruction(outputs),), reason)
        elif not self._within and observed.is_told:
            self._added[kernel.name, observed.configuration] = added
            self._tell(observed, added.instructions, added.reason)

    def _report_failure(self, observed: ObservedCall, error: Exception) -> None:
        """Report a call that has raised, unless it raises on the CPU too, for arguments of the same shapes and dtypes.

        For example, mismatching shapes do not show a lack of support.
        """

        def moved(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return torch.zeros(value.shape, dtype=value.dtype)
            if isinstance(value, (list, tuple)):
                return type(value)(map(moved, value))
            return torch.device("cpu") if isinstance(value, torch.device) else value

        call, fails_anywhere = observed.call, False
        if observed.is_told:
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=[]):
                    call.operation(*moved(call.passed), **{name: moved(value) for name, value in call.kwargs.items()})
            except Exception:  # noqa: BLE001, whatever is wrong with the arguments
                fails_anywhere = True
        if observed.is_told and not fails_anywhere:
            self._tell(observed, (observed.instruction(()),), message_of(error) or type(error).__name__)
        # The calls around this call fail because of it, and are not reported.
        for outer in self._within:
            outer.is_told = False

    def _tell(self, observed: ObservedCall, instructions: tuple[str, ...], reason: str) -> None:
        """Report a call. If it is unsupported, do not report the calls around it."""
        part = self._backend.part if reason else ""
        self._report(OperatorCall(observed.kind, observed.configuration, observed.line, instructions, part, reason))
        for outer in self._within if reason else ():
            outer.is_told = False

"""Follow the lazy core through some steps: every kernel call with its site, and every executed graph."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from numdrift.kernels.swaps.sites import ModulePaths

from ...hooks.graph_capture import CaptureRequest
from ...script.script_lines import HARNESS
from ...torch_private.deferred.lazy import LAZY_KEY, lazy_kernels, set_lazy_source_locations, settle_view
from ..call_places import CallPlaces
from ..called_operators import KeptFailure
from ..followed_calls import Arguments, FollowedCall, FollowedKernels, KnownValues
from .lazy_dump import Counted, DumpFile, Reasons
from .lazy_executed import ExecutedGraphs

COPIES = ("_to_copy", "_copy_from", "_copy_from_and_resize")
"""Kernels that may copy a value to the CPU, which executes a graph."""

PATIENCE = 20_000
"""The number of kernel calls after which an execution is no longer awaited. A call takes about a kilobyte of memory."""


class Following:
    """The observer of the core, from its construction to `close`.

    A failure in the middle of an op is `kept`. After a failure, and once `is_over`, ops run unobserved. `is_pending` is
    true when the wanted steps are over and only their last graphs are awaited.
    """

    def __init__(
        self, values: KnownValues, dump: DumpFile, executed: ExecutedGraphs, counted: Counted, request: CaptureRequest
    ) -> None:
        self.kept = KeptFailure()
        self.is_over = self.is_pending = False
        self.is_setup = False
        self.step = 0
        self._known = values
        self._dump = dump
        self._executed = executed
        self._counted = counted
        self._script = request.script
        self._steps = request.steps
        self._named_tensors = request.named_tensors
        self._modules = ModulePaths()
        self._reasons = Reasons()
        self._within: list[int] = []
        self._viewed = ""
        self._has_taken = False
        self._is_polling = False
        self.places = CallPlaces(request.script, self._modules)
        self._had_locations = set_lazy_source_locations(True)
        dump.begin()
        self._kernels = FollowedKernels(lazy_kernels(), LAZY_KEY, self._before, self._after)

    def close(self) -> None:
        """Remove every hook. Must not be called from within a kernel."""
        self.is_over = True
        self._kernels.close()
        self._modules.close()
        set_lazy_source_locations(self._had_locations)
        self._dump.pause()

    def enter(self, step: int) -> None:
        """Begin a step."""
        self.step = step
        self.is_pending = step not in self._steps
        self._has_taken = self._has_taken and self.is_pending
        self.places.phase = "forward"

    @property
    def is_done(self) -> bool:
        """True if the step is not wanted and no execution is awaited any more.

        An execution since the last wanted step ends the wait, and so do more than `PATIENCE` kernel calls.
        """
        return self.is_pending and (self._has_taken or len(self._known.calls) > PATIENCE)

    def name(self) -> None:
        """Bind the current values of the script's tensors to their names."""
        self._known.name(self._named_tensors())

    def name_what_they_view(self) -> None:
        """Name the values that the script's tensors are views of, in case these were made before they were followed.

        The core keeps a parameter and the tensor that it was detached from as two values. A new view is updated from
        the latter, and is released before anything is executed.
        """
        for binding, tensor in self._named_tensors().items():
            if tensor.device.type == "lazy":
                self._viewed = binding
                settle_view(tensor.detach())
        self._viewed = ""

    def poll(self, *, copying: bool = False) -> None:
        """Take the graphs executed since the last call."""
        if self._is_polling or self.is_over or not self._dump.has_grown:
            return
        self._is_polling = True
        self.name()
        dumps = self._dump.read()
        for position, dump in enumerate(dumps):
            cut = self._reasons.cut(dump, self._script, copying=copying)
            is_last = position == len(dumps) - 1
            step = self._executed.take(dump, cut, self.step, is_last=is_last, is_awaited=not self._has_taken)
            if step is None:
                self._counted.leave_out_execution()
            else:
                self._counted.put_down(step)
                self._has_taken = True
                self.is_over = self.is_over or (self.is_pending and step not in self._steps)
        self._is_polling = False

    def _before(self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> FollowedCall | None:
        if self.is_over or self.kept.error is not None or self._is_polling:
            return None
        call = None
        with self.kept:
            self.poll()
            if self.is_over:
                return None
            arguments = Arguments.of(self._known.number_of, operation, args, kwargs)
            number = len(self._known.calls)
            # Frame 0 is this method, frame 1 the kernel's replacement in `FollowedKernels`. A call more or less in
            # between changes the number.
            caller = sys._getframe(2)
            call = FollowedCall(
                number,
                self.step,
                self.places.here(operation, arguments.attributes),
                arguments.operands,
                self._within[-1] if self._within else None,
                self.is_setup,
                caller.f_code.co_filename.startswith(HARNESS) and not self._within,
            )
            if call.place.op in COPIES:
                self._reasons.copying(number, caller)
            self._known.calls[number] = call
            self._within.append(number)
        return call if self.kept.error is None else None

    def _after(self, call: FollowedCall, outputs: Any) -> None:
        if self.kept.error is not None:
            return
        with self.kept:
            self._within.pop()
            call.made = self._known.numbers_in(outputs)
            self._known.made(call)
            for operand in call.operands if self._viewed else ():
                if operand.tensor is not None:
                    self._known.bindings.setdefault(operand.tensor, self._viewed)
            self.poll(copying=True)

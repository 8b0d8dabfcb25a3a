"""Follow the lazy core through some steps: every kernel call with its site, and every executed graph."""

from __future__ import annotations

from ...hooks.graph_capture import CaptureRequest
from ...torch_private.deferred.lazy import LAZY_KEY, set_lazy_source_locations, settle_view
from ...torch_private.device_kernels import kernels_under
from ..deferred_calls import CallFollower, FollowedCall, KnownValues
from ..followed_kernels import KernelCall
from .lazy_dump import Counted, DumpFile, Reasons
from .lazy_executed import ExecutedGraphs

COPIES = ("_to_copy", "_copy_from", "_copy_from_and_resize")
"""Kernels that may copy a value to the CPU. Such a copy makes the core execute a graph."""

PATIENCE = 20_000
"""The number of kernel calls after which an execution is no longer awaited. A call takes about a kilobyte of memory."""


class Following(CallFollower):
    """The follower of the core. Once it `is_over`, ops run unobserved."""

    def __init__(
        self, values: KnownValues, dump: DumpFile, executed: ExecutedGraphs, counted: Counted, request: CaptureRequest
    ) -> None:
        self.is_over = False
        self._dump = dump
        self._executed = executed
        self._counted = counted
        self._script = request.script
        self._steps = request.steps
        self._named_tensors = request.named_tensors
        self._reasons = Reasons()
        self._viewed = ""
        self._has_taken = False
        self._is_polling = False
        self._had_locations = set_lazy_source_locations(True)
        dump.begin()
        super().__init__(values, request, kernels_under(LAZY_KEY), LAZY_KEY)

    def close(self) -> None:
        """Remove every hook. Must not be called from within a kernel."""
        self.is_over = True
        super().close()
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
        return self.is_pending and (self._has_taken or len(self._known_values.calls) > PATIENCE)

    def name(self) -> None:
        """Bind the current values of the script's tensors to their names."""
        self._known_values.name(self._named_tensors())

    def name_what_they_view(self) -> None:
        """Name the values that the script's tensors are views of.

        Such a value may have been made before calls were followed. The core keeps a parameter and the tensor that it
        was detached from as two values. Updating a new view of the parameter calls a kernel on the value of that
        tensor, and so reveals the value's number. The view is released before anything is executed.
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

    @property
    def _is_followed(self) -> bool:
        return not self.is_over and super()._is_followed and not self._is_polling

    def _beginning(self) -> None:
        self.poll()

    def _began(self, followed: FollowedCall, call: KernelCall) -> None:
        if followed.place.op in COPIES:
            self._reasons.copying(followed.number, call.caller)

    def _ended(self, followed: FollowedCall) -> None:
        for operand in followed.operands if self._viewed else ():
            if operand.tensor is not None:
                self._known_values.bindings.setdefault(operand.tensor, self._viewed)
        self.poll(copying=True)

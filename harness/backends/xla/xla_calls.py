"""Follow torch_xla through some steps: every kernel call with its site.

An op that torch_xla decomposes above autograd (see `composed_ops`) is the parent of its parts.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numdrift.kernels.expectation import tensors_in
from numdrift.kernels.swaps.sites import ModulePaths

from ...hooks.graph_capture import CaptureRequest
from ...records.tools.graph_record import Node
from ...script.script_lines import HARNESS
from ...torch_private.deferred.xla import XLA_KEY
from ...torch_private.deferred.xla_tensors import xla_kernels
from ...torch_private.dispatching import current_autograd_node
from ..call_places import CallPlaces
from ..called_operators import KeptFailure
from ..followed_calls import Arguments, FollowedCall, FollowedKernels, KnownValues, value_of
from .composed_ops import ComposedOp, ComposedOps


class XlaCalls:
    """The observer of calls, from its creation until `close`.

    `between` is called before each call with None, and after it with the call. A graph that was executed between the
    two was executed by this call. A failure in the middle of an op is `kept`; from then on ops run unobserved.
    `is_pending` is true when the wanted steps are over and only their last graphs are awaited.
    """

    def __init__(
        self, values: KnownValues, request: CaptureRequest, between: Callable[[FollowedCall | None], None]
    ) -> None:
        self.kept = KeptFailure()
        self.is_setup = self.is_pending = False
        self.step = 0
        self.count = 0
        """The number of calls since the last wanted step began."""
        self._known = values
        self._between = between
        self._modules = ModulePaths()
        self._within: list[int] = []
        self._wholes: dict[int, int] = {}
        self._is_asked = False
        self._thread = threading.get_ident()
        self.places = CallPlaces(request.script, self._modules)
        self._kernels = FollowedKernels(xla_kernels(), XLA_KEY, self._before, self._after)
        self._composed = ComposedOps()

    def close(self) -> None:
        """Remove every hook. Must not be called from within a kernel."""
        self._composed.close()
        self._kernels.close()
        self._modules.close()

    def enter(self, step: int, *, is_wanted: bool) -> None:
        """Begin a step."""
        self.step, self.count, self.is_pending = step, 0 if is_wanted else self.count, not is_wanted
        self.places.phase = "forward"

    @property
    def _is_followed(self) -> bool:
        # A backward runs in a thread of the device. Any other thread is a data loader's, which moves batches.
        is_own = threading.get_ident() == self._thread or current_autograd_node() is not None
        return is_own and self.kept.error is None and not self._is_asked

    def _before(self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> FollowedCall | None:
        if not self._is_followed:
            return None
        call = None
        with self.kept:
            self._tell(None)
            arguments = Arguments.of(self._known.number_of, operation, args, kwargs)
            # Frame 0 is this method, frame 1 the kernel's replacement in `FollowedKernels`. In the device's thread,
            # where backwards run, there is no further frame.
            caller = sys._getframe(1).f_back
            by_harness = caller is not None and caller.f_code.co_filename.startswith(HARNESS)
            place = self.places.here(operation, arguments.attributes)
            whole = self._composed.whole(operation, place.sequence if place.phase == "backward" else None)
            parent = self._within[-1] if self._within else self._number_of(whole)
            number = len(self._known.calls)
            call = FollowedCall(
                number,
                self.step,
                place,
                arguments.operands,
                parent,
                self.is_setup,
                by_harness and parent is None,
            )
            self._known.calls[number] = call
            self._within.append(number)
            self.count += 1
        return call if self.kept.error is None else None

    def _after(self, call: FollowedCall, outputs: Any) -> None:
        if self.kept.error is not None:
            return
        with self.kept:
            self._within.pop()
            call.made = self._known.numbers_in(outputs)
            call.results = [value_of(tensor) for tensor in tensors_in(outputs) if tensor.device.type == "xla"]
            self._known.made(call)
            self._tell(call)

    def _number_of(self, whole: ComposedOp | None) -> int | None:
        """Return the number of the call of a decomposed op. That call has no nodes; other calls are its parts."""
        if whole is None:
            return None
        if whole.number not in self._wholes:
            _, op, overload = str(whole.operation).split(".")
            place = Node("", op, whole.operation.namespace, "" if overload == "default" else overload)
            number = self._wholes[whole.number] = len(self._known.calls)
            self._known.calls[number] = FollowedCall(number, self.step, place)
        return self._wholes[whole.number]

    def _tell(self, call: FollowedCall | None) -> None:
        self._is_asked = True
        try:
            self._between(call)
        finally:
            self._is_asked = False

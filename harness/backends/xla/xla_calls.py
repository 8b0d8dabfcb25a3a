"""Follows torch_xla through some steps: every kernel call with its place in the script.

torch_xla makes `native_layer_norm` of other ops above autograd, so that its derivative is made of theirs. Such a call
is what its ops are decomposed from, and their derivatives are decomposed from `native_layer_norm_backward`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numdrift.kernels.expectation import tensors_in
from numdrift.kernels.swaps.sites import ModulePaths

from ...records.graph_record import Node
from ...torch_private.dispatching import current_autograd_node, next_sequence_number
from ...torch_private.operators import aten_overload
from ...torch_private.xla import XLA_KEY
from ...torch_private.xla_tensors import XLA_AUTOGRAD_KEY, xla_composites, xla_kernels
from ..call_places import CallPlaces
from ..called_operators import HARNESS, KeptFailure
from ..captures import CaptureRequest
from ..followed_calls import Arguments, FollowedCall, FollowedKernels, KnownValues, value_of

SUMS = ("add", "add_")
"""Where gradients meet autograd adds them, after what gave the last one and as if by that."""


class XlaCalls:
    """Follows from its making to `close`. Before and after each call `between` is told, with the call where one has
    just run: a graph that was executed since then was executed by it.

    What fails in the middle of an op is `kept`; from then on ops run as if nobody followed. `is_pending` says that the
    steps wanted are over and only their last graphs are waited for.
    """

    def __init__(
        self, known: KnownValues, request: CaptureRequest, between: Callable[[FollowedCall | None], None]
    ) -> None:
        self.kept = KeptFailure()
        self.is_setup = self.is_pending = False
        self.step = 0
        self.count = 0
        """Calls since the last step that is wanted began."""
        self._known = known
        self._between = between
        self._modules = ModulePaths()
        self._within: list[int] = []
        self._begun: dict[int, int] = {}
        self._derivatives: dict[int, int] = {}
        self._is_asked = False
        self._thread = threading.get_ident()
        self.places = CallPlaces(request.script, self._modules)
        self._kernels = FollowedKernels(xla_kernels(), XLA_KEY, self._before, self._after)
        self._composites = FollowedKernels(xla_composites(), XLA_AUTOGRAD_KEY, self._entered, self._left)

    def close(self) -> None:
        """Take every hook out; not to be called from within a kernel."""
        self._composites.close()
        self._kernels.close()
        self._modules.close()

    def enter(self, step: int, *, is_wanted: bool) -> None:
        """A step begins."""
        self.step, self.count, self.is_pending = step, 0 if is_wanted else self.count, not is_wanted
        self.places.phase = "forward"

    @property
    def _is_followed(self) -> bool:
        # A backward runs in a thread of the device's; any other is a loader's, which moves batches meanwhile.
        is_own = threading.get_ident() == self._thread or current_autograd_node() is not None
        return is_own and self.kept.error is None and not self._is_asked

    def _before(self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> FollowedCall | None:
        if not self._is_followed:
            return None
        call = None
        with self.kept:
            self._tell(None)
            arguments = Arguments.of(self._known.number_of, operation, args, kwargs)
            number = len(self._known.calls)
            # Frame 0 is this method and 1 the kernel's stand-in of `FollowedKernels`. In the device's thread, where
            # backwards run, there is none beyond.
            caller = sys._getframe(1).f_back
            by_harness = caller is not None and caller.f_code.co_filename.startswith(HARNESS)
            place = self.places.here(operation, arguments.attributes)
            derivative = None
            if place.phase == "backward" and place.sequence is not None and place.op not in SUMS:
                derivative = self._derivatives.get(place.sequence)
            call = FollowedCall(
                number,
                self.step,
                place,
                arguments.operands,
                self._within[-1] if self._within else derivative,
                self.is_setup,
                by_harness and not self._within,
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
            call.results = [value_of(one) for one in tensors_in(outputs) if one.device.type == "xla"]
            self._known.made(call)
            self._tell(call)

    def _entered(self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> FollowedCall | None:
        """An op begins that torch_xla makes of others."""
        if not self._is_followed:
            return None
        call = None
        with self.kept:
            call = self._outer(operation, self._within[-1] if self._within else None)
            self._within.append(call.number)
            self._begun[call.number] = next_sequence_number()
        return call if self.kept.error is None else None

    def _left(self, call: FollowedCall, outputs: Any) -> None:
        if self.kept.error is not None:
            return
        with self.kept:
            self._within.pop()
            derivative = aten_overload(f"aten::{call.place.op}_backward")
            numbers = range(self._begun.pop(call.number), next_sequence_number())
            if derivative is not None and numbers:
                self._derivatives.update(dict.fromkeys(numbers, self._outer(derivative, None).number))

    def _outer(self, operation: Any, parent: int | None) -> FollowedCall:
        """A call that has no node of its own: what others are decomposed from."""
        _, op, overload = str(operation).split(".")
        place = Node("", op, operation.namespace, "" if overload == "default" else overload)
        number = len(self._known.calls)
        call = self._known.calls[number] = FollowedCall(number, self.step, place, parent=parent)
        return call

    def _tell(self, call: FollowedCall | None) -> None:
        self._is_asked = True
        try:
            self._between(call)
        finally:
            self._is_asked = False

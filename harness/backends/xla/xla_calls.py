"""Follow torch_xla through some steps: every kernel call with its site.

An op that torch_xla decomposes above autograd (see `composed_ops`) is the parent of its parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...hooks.graph_capture import CaptureRequest
from ...records.tools.graph_record import Node
from ...torch_private.deferred.xla import XLA_KEY
from ...torch_private.device_kernels import device_kernels
from ...torch_private.dispatching import current_autograd_node
from ...torch_private.operators import op_parts
from ..deferred_calls import CallFollower, FollowedCall, KnownValues
from ..followed_kernels import KernelCall
from .composed_ops import ComposedOps


class XlaCalls(CallFollower):
    """The follower of calls.

    `between` is called before each call with None, and after it with the call. A graph that was executed in between
    was executed by that call.
    """

    def __init__(
        self, values: KnownValues, request: CaptureRequest, between: Callable[[FollowedCall | None], None]
    ) -> None:
        self.count = 0
        """The number of calls since the last wanted step began."""
        self._between = between
        self._wholes: dict[int, int] = {}
        self._is_notifying = False
        self._thread = threading.get_ident()
        super().__init__(values, request, device_kernels(XLA_KEY), XLA_KEY)
        self._composed = ComposedOps()

    def close(self) -> None:
        """Remove every hook. Must not be called from within a kernel."""
        self._composed.close()
        super().close()

    def enter(self, step: int, *, is_wanted: bool) -> None:
        """Begin a step."""
        self.step, self.count, self.is_pending = step, 0 if is_wanted else self.count, not is_wanted
        self.places.phase = "forward"

    @property
    def _is_followed(self) -> bool:
        # A backward runs in a thread of the device. Any other thread is a data loader's, which moves batches.
        is_own = threading.get_ident() == self._thread or current_autograd_node() is not None
        return is_own and super()._is_followed and not self._is_notifying

    def _beginning(self) -> None:
        self._tell(None)

    def _began(self, followed: FollowedCall, call: KernelCall) -> None:
        self.count += 1

    def _ended(self, followed: FollowedCall) -> None:
        self._tell(followed)

    def _whole(self, call: KernelCall, place: Node) -> int | None:
        """If this kernel call is part of a decomposed op, return the number of that op's call; otherwise None.

        The decomposed op's call has no nodes of its own, only parts.
        """
        whole = self._composed.whole(call.operation, place.sequence if place.phase == "backward" else None)
        if whole is None:
            return None
        if whole.number not in self._wholes:
            number = self._wholes[whole.number] = len(self._known_values.calls)
            self._known_values.calls[number] = FollowedCall(number, self.step, Node("", *op_parts(whole.operation)))
        return self._wholes[whole.number]

    def _tell(self, call: FollowedCall | None) -> None:
        self._is_notifying = True
        try:
            self._between(call)
        finally:
            self._is_notifying = False

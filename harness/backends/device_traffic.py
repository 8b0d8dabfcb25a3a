"""Copies between the host and a device, and ops that a device hands to the CPU, by line of the script.

Kernel launches are not observed here: only a profiler counts them (`numdrift profile`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ..records.tools.backend_work import FROM_DEVICE, ITEM, NON_BLOCKING, TO_DEVICE, Work
from ..script.script_lines import HARNESS, ScriptLines
from ..tape.recording import followed_calls
from ..tape.recording.followed_calls import FollowedOps, OpCall
from ..torch_private import device_copies, dispatching, registered_kernels
from ..torch_private.device_copies import around_copies, has_fallback
from ..torch_private.device_kernels import is_taken_by_fallback
from ..torch_private.registered_kernels import dispatch_key
from .called_operators import KeptFailure, kind_of

OBSERVING = (
    __file__,
    *(str(module.__file__) for module in (device_copies, dispatching, registered_kernels, followed_calls)),
)
ON_BEHALF = (str(Path(HARNESS, "script")), str(Path(torch.__file__).parent))
"""Folders of code that acts for its caller. The nearest frame outside of them shows who makes the copy."""


class DeviceTraffic:
    """The observer of a device's copies and fallbacks, which calls `report` with each from `__enter__` to `__exit__`.

    Copies that numdrift makes for itself are left out. The duration of a copy is that of the script's call. If the host
    needs the values at once, the call waits for all work launched before it. An asynchronous copy does not wait.
    """

    def __init__(self, script: str, device: str, report: Callable[[Work], None]) -> None:
        self._device = device
        self._kind = device.partition(":")[0]
        self._report = report
        self._lines = ScriptLines(script)
        self._kept = KeptFailure()
        self._copies = 0
        self._undone = ExitStack()

    def __enter__(self) -> Callable[[], None]:
        self._undone.callback(around_copies(self._device, self._copied, self._read))
        if has_fallback(self._device):
            self._undone.enter_context(FollowedOps(self._op_begins, self._op_ended))
        return self._kept.tell

    def __exit__(self, *raised: object) -> None:
        self._undone.close()

    def _copied(self, source: torch.Tensor, target: torch.Tensor, non_blocking: bool, make: Callable[[], Any]) -> Any:
        ends = (source.device.type, target.device.type)
        if ends.count(self._kind) != 1 or "cpu" not in ends:
            return make()
        name = TO_DEVICE if target.device.type == self._kind else FROM_DEVICE
        size, cause = target.numel() * target.element_size(), NON_BLOCKING if non_blocking else ""
        return self._timed(name, size, cause, make)

    def _read(self, tensor: torch.Tensor, take: Callable[[], Any]) -> Any:
        return self._timed(FROM_DEVICE, tensor.element_size(), ITEM, take)

    def _timed(self, name: str, size: int, cause: str, act: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = act()
        seconds = time.perf_counter() - began
        with self._kept:
            if not _is_of_harness():
                self._copies += 1
                self._report(Work("transfer", name, seconds, size, None, self._lines.here(), cause))
        return result

    def _op_begins(self, call: OpCall) -> tuple[Any, int, float]:
        return call.operation, self._copies, time.perf_counter()

    def _op_ended(self, begun: tuple[Any, int, float], outputs: Any) -> None:
        operation, copies, began = begun
        seconds = time.perf_counter() - began
        with self._kept:
            # The device may have a different kind of fallback. Only a fallback to the CPU copies arguments and results.
            if self._copies > copies and is_taken_by_fallback(operation, dispatch_key(self._kind)):
                self._report(Work("fallback", kind_of(operation), seconds, None, None, self._lines.here()))


def _is_of_harness() -> bool:
    """Return whether the copy is made by numdrift rather than by the script or by code that acts for the script."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*OBSERVING, *ON_BEHALF)):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(HARNESS)

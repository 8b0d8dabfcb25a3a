"""Support in eager mode: what the dispatcher has for each operator on the mode's device, and what fails
there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...records.backend_work import OperatorCall
from ...torch_private import dispatching
from ...torch_private.device_kernels import is_taken_by_fallback
from ...torch_private.dispatching import ShownOps, dispatch_key
from ..called_operators import ScriptLines, configuration, instruction, is_called_by_harness
from ..compiled.support import kind_of

PART = "dispatcher"


@contextmanager
def observe_eager(script: str, device: str, told: Callable[[OperatorCall], None]) -> Iterator[None]:
    """Within the context `told` hears of each operator that is executed. Raises what has failed in here.

    Unsupported is what the device has no kernel for: the dispatcher raises, or its fallback takes the
    operator.
    """
    executed = _Executed(ScriptLines(script), device.partition(":")[0], told)
    shown = ShownOps(executed.taken, executed.failed)
    shown.__enter__()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        shown.__exit__(None, None, None)
    if executed.error is not None:
        raise executed.error


class _Executed:
    """Tells of each operator that has run or failed."""

    def __init__(self, lines: ScriptLines, device: str, told: Callable[[OperatorCall], None]) -> None:
        self.error: Exception | None = None
        self._lines = lines
        self._device = device
        self._key = dispatch_key(device)
        self._told = told

    def taken(self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any) -> None:
        on_cpu = self._device != "cpu" and is_taken_by_fallback(operation, self._key)
        reason = f"no kernel for {self._device}: the fallback of the device takes it" if on_cpu else ""
        self._tell(operation, args, kwargs, outputs, reason)

    def failed(self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
        if isinstance(error, NotImplementedError):
            text = (str(error).splitlines() or [type(error).__name__])[0]
            self._tell(operation, args, kwargs, (), text)

    def _tell(self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any, reason: str) -> None:
        if is_called_by_harness([__file__, str(dispatching.__file__)]):
            return
        try:
            text = configuration(operation, args, kwargs, self._device)
            kind = kind_of(operation)
            made = (instruction(kind, outputs, text),)
            part = PART if reason else ""
            self._told(OperatorCall(kind, text, self._lines.here(), made, part, reason))
        except Exception as error:  # noqa: BLE001, the op goes on whatever fails here
            self.error = self.error or error

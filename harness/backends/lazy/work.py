"""The work of the lazy core: every graph that it compiles and executes, and every copy between it and the
CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...records.backend_work import FALLBACK, FROM_DEVICE, RECORDING, TO_DEVICE, Work
from ...torch_private.lazy_work import COMPILED, Copy, ExecutedCut, lazy_graph_sizes, watch_lazy_copies, watch_lazy_cuts
from ...torch_private.patches import Patches
from ..work_lines import KeptFailure, line_in

ITEM = "aten::_local_scalar_dense"
"""What `.item()`, `float(tensor)` and `if tensor` are to the core: an op that it has no kernel for."""

HARNESS = str(Path(__file__).parents[2])
"""Where the code is whose reads are none of the training's."""

ADOPTION = {
    str(Path(HARNESS, "script", f"{name}.py"))
    for name in (
        "adoption", "adoption_notes", "autocast", "connection", "cuda", "devices", "meeting", "parallel", "placement",
        "script_api", "script_compiling",
    )
}  # fmt: skip
"""Where calls of the script's own are led through; what else lies there reads for numdrift."""


def _is_own(frame: Any) -> bool:
    """Whether numdrift reads a value for itself."""
    while frame is not None and frame.f_code.co_filename in ADOPTION:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(HARNESS)


@dataclass(slots=True)
class Fallback:
    """An op that the core runs on the CPU: between `began` and `ended` its arguments are copied, it runs, and
    its results are copied back, all from one `place` in the Python code."""

    op: str
    place: tuple[Any, int]
    call: str
    began: float
    ended: float


class LazyWork:
    """Tells `told` of the core's work from `__enter__` to `__exit__`; what that gives tells of what is not
    told yet.

    Where a value is read the core compiles, executes and copies in one call: that call's time is the
    compilation's for a new graph, the execution's for a known one. A mark_step tells the two apart.
    """

    def __init__(self, script: str, told: Callable[[Work], None]) -> None:
        self._script = script
        self._told = told
        self._fallback: Fallback | None = None
        self._sizes = lazy_graph_sizes()
        self._kept = KeptFailure()
        self._patches = Patches("the work of the lazy backend")

    def __enter__(self) -> Callable[[], None]:
        with self._patches:
            self._patches.also(watch_lazy_cuts(self._seen_cut))
            self._patches.also(watch_lazy_copies(self._seen_copy, _is_own))
        return self._tell

    def __exit__(self, *raised: object) -> None:
        self._patches.undo()
        self._end_fallback()

    def _tell(self) -> None:
        self._kept.tell()
        self._end_fallback()

    def _seen_cut(self, cut: ExecutedCut) -> None:
        with self._kept:
            self._end_fallback()
            if cut.counted:
                self._executed(cut.reason, cut.scheduled, cut.counted, line_in(self._script), cut.executed)

    def _seen_copy(self, copy: Copy) -> None:
        with self._kept:
            self._copied(copy)

    def _copied(self, copy: Copy) -> None:
        if copy.own:
            self._executed(RECORDING, copy.seconds, copy.counted, "")
            return
        call = line_in(self._script, copy.caller)
        place = (copy.caller.f_code, copy.caller.f_lasti)
        if copy.fell_back or self._fallback is None or self._fallback.place != place:
            self._end_fallback()
        if copy.fell_back and copy.fell_back[-1] != ITEM:
            self._fallback = Fallback(copy.fell_back[-1], place, call, copy.began, copy.began)
        if self._fallback is not None:
            self._fallback.ended = copy.began + copy.seconds
        if not copy.to_cpu:
            self._told(Work("transfer", TO_DEVICE, copy.seconds, copy.bytes, None, call))
            return
        reason = "item" if ITEM in copy.fell_back else "read"
        if self._fallback is not None:
            reason = FALLBACK + self._fallback.op
        if copy.counted:
            self._executed(reason, copy.seconds, copy.counted, call)
        alone = None if copy.counted else copy.seconds
        self._told(Work("transfer", FROM_DEVICE, alone, copy.bytes, None, call))

    def _executed(
        self,
        reason: str,
        seconds: float,
        counted: Mapping[str, int],
        call: str,
        execution: float | None = None,
    ) -> None:
        """A graph was executed; `execution` are seconds that are known to be no compilation's, after
        `seconds`."""
        size, cached = self._size(), COMPILED not in counted
        compiled, executed = (None, seconds + (execution or 0.0)) if cached else (seconds, execution)
        self._told(Work("compile", reason, compiled, size, cached, call))
        self._told(Work("execute", reason, executed, size, None, call))

    def _size(self) -> int | None:
        """The nodes of the graph that was just executed; None where a read of numdrift's own has executed
        another."""
        (before, sum_before), (now, total) = self._sizes, lazy_graph_sizes()
        self._sizes = now, total
        return round(total - sum_before) if now == before + 1 else None

    def _end_fallback(self) -> None:
        fallback, self._fallback = self._fallback, None
        if fallback is not None:
            seconds = fallback.ended - fallback.began
            self._told(Work("fallback", fallback.op, seconds, None, None, fallback.call))

"""Why a lazy graph was executed where it was, and what the lazy core has counted meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ... import torch_private
from ...records.graph_record import Cut
from .lazy_calls import FRAME
from .lazy_dump import DumpedGraph, Frame

ITEM = "aten::_local_scalar_dense"
"""What `.item()`, `float(tensor)` and `if tensor` are to the core: an op that falls back to the CPU."""

EXECUTIONS = ("UncachedCompile", "CachedCompile")
_HERE = str(Path(__file__).parent)

COUNTED = {"UncachedCompile": "compiled", "CachedCompile": "cached", "MarkStep": "mark_steps"}


class Counted:
    """What the core counts, by the step that it is put down to."""

    def __init__(self) -> None:
        self._start = torch_private.lazy_counters()
        self._before = self._start
        self.steps: dict[int, Counter[str]] = {}

    def put_down(self, step: int) -> None:
        """Put what was counted since the last time down to a step."""
        now = torch_private.lazy_counters()
        tally = self.steps.setdefault(step, Counter(dict.fromkeys(_NAMES, 0)))
        tally.update(summed(self._before, now))
        self._before = now

    def leave_out_execution(self) -> None:
        """Put the execution that was just counted down to nothing."""
        now = torch_private.lazy_counters()
        self._before = {**self._before, **{name: now[name] for name in EXECUTIONS if name in now}}

    def total(self) -> dict[str, int]:
        return summed(self._start, torch_private.lazy_counters())


_NAMES = (*COUNTED.values(), "fallbacks", "items")


def summed(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """What was counted in between, by our names."""
    found = dict.fromkeys(_NAMES, 0)
    for name, value in now.items():
        more = value - before.get(name, 0)
        if name in COUNTED:
            found[COUNTED[name]] += more
        elif name.startswith("aten::"):
            found["items" if name == ITEM else "fallbacks"] += more
    return found


class Reasons:
    """Follows which op the core has handed to the CPU: it counts the op, then copies each argument there."""

    def __init__(self) -> None:
        self._before = _fallbacks()
        self._current = ""
        self._place: tuple[int, Any, int] | None = None

    def copying(self, number: int, frame: Any) -> None:
        """A kernel call that may copy a tensor to the CPU begins; `frame` is the Python frame that led to it."""
        now = _fallbacks()
        grown = [name for name, value in now.items() if value != self._before.get(name, 0)]
        self._before = now
        place = (number, frame.f_code, frame.f_lasti)
        if grown:
            self._current = grown[-1]
        elif self._place is None or self._place[0] + 1 != number or self._place[1:] != place[1:]:
            self._current = ""
        self._place = place

    def cut(self, dump: DumpedGraph, script: str, *, copying: bool) -> Cut:
        """Why this graph was executed: while a kernel was `copying` to the CPU, or by somebody's own order."""
        stack = [frame for frame in reversed(dump.frames) if not is_own(frame)]
        source = next((f"{one.file}:{one.line}" for one in dump.frames if one.file == script), "")
        text = "\n".join(f'  File "{one.file}", line {one.line}, in {one.function}' for one in stack)
        if not copying:
            marked = any(one.function == "mark_step" for one in dump.frames)
            return Cut("mark_step" if marked else "read", "", source, text)
        if self._current in ("", ITEM):
            return Cut("item" if self._current else "read", "", source, text)
        return Cut("fallback", self._current.replace("::", "."), source, text)


def is_own(frame: Frame) -> bool:
    """Whether a frame is one of this capture's own."""
    return frame.file == FRAME or frame.file.startswith(_HERE)


def _fallbacks() -> dict[str, int]:
    return {name: value for name, value in torch_private.lazy_counters().items() if name.startswith("aten::")}

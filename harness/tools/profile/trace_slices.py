"""The slices of a Chrome trace, nested in one another.

The format is that of `torch.profiler`'s `export_chrome_trace`: complete events (`ph` X) with `ts` and `dur` in
microseconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...records.tools.device_profile import WorkSort

EXECUTED = ("cpu_op", "user_annotation")
PYTHON = "python_function"

ON_DEVICE: Mapping[str, WorkSort] = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    "mtia_ccp_events": "kernel",
}
"""The categories of a device's work, which are the same for CUDA, ROCm, XPU and plug-ins."""

DEVICE_RANGE = "gpu_user_annotation"
"""The category of a range on a device: from the first to the last piece of work that was launched in it."""

MEMORY = "[memory]"
"""The name of the events at which memory was allocated or freed, if the profiler recorded them."""

_RUNTIME = ("_runtime", "_driver")


def is_runtime_call(category: str) -> bool:
    """Check whether a category has runtime calls on the host: `cuda_runtime`, `xpu_driver`, `privateuse1_runtime`."""
    return category.endswith(_RUNTIME)


Thread = tuple[Any, Any]


@dataclass(slots=True, eq=False)
class Slice:
    """One event.

    start, end: in microseconds
    within: the slice that directly contains it
    self_time: its time without the times of the slices directly within it
    """

    name: str
    category: str
    thread: Thread
    start: float
    end: float
    arguments: Mapping[str, Any]
    within: Slice | None = None
    self_time: float = 0.0
    children: list[Slice] = field(default_factory=list)

    @property
    def time(self) -> float:
        return self.end - self.start

    def ancestors(self) -> Iterator[Slice]:
        """Yield the slices that contain this one, the innermost first."""
        ancestor = self.within
        while ancestor is not None:
            yield ancestor
            ancestor = ancestor.within


def slices_of(events: Iterable[Mapping[str, Any]], categories: Collection[str]) -> list[Slice]:
    """Return the complete events of these categories, sorted by start, longer events first."""
    slices = [
        Slice(
            str(event["name"]),
            event["cat"],
            (event.get("pid"), event.get("tid")),
            float(event["ts"]),
            float(event["ts"]) + float(event["dur"]),
            event.get("args") or {},
        )
        for event in events
        if event.get("ph") == "X" and event.get("cat") in categories
    ]
    return sorted(slices, key=lambda entry: (entry.start, -entry.end))


def nest(slices: Sequence[Slice]) -> dict[Thread, list[Slice]]:
    """Set the parent and the self time of each slice; return the outermost slices of each thread.

    `slices` are in the order of `slices_of`. A slice that outlasts the slice in which it begins is cut off at that
    slice's end: the profiler reads its clock a moment after a range has ended."""
    outermost: dict[Thread, list[Slice]] = {}
    open_: dict[Thread, list[Slice]] = {}
    for event in slices:
        stack = open_.setdefault(event.thread, [])
        while stack and stack[-1].end <= event.start:
            stack.pop()
        event.self_time = event.time
        # The time of a slice is subtracted only from its parent's self time.
        if stack:
            event.end = min(event.end, stack[-1].end)
            event.self_time = event.time
            event.within = stack[-1]
            stack[-1].children.append(event)
            stack[-1].self_time -= event.time
        else:
            outermost.setdefault(event.thread, []).append(event)
        stack.append(event)
    return outermost


def walk(outermost: Iterable[Slice]) -> Iterator[Slice]:
    """Yield every slice, each before the slices within it."""
    waiting = list(outermost)[::-1]  # a stack instead of recursion: Python calls may nest more than a thousand deep
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(reversed(event.children))

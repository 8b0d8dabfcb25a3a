"""The slices of a Chrome trace, each within the one that contains it.

The format is that of `torch.profiler`'s `export_chrome_trace`: complete events (`ph` X) with `ts` and `dur`
in microseconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...records.device_profile import WorkSort

EXECUTED = ("cpu_op", "user_annotation")
PYTHON = "python_function"

ON_DEVICE: Mapping[str, WorkSort] = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    "mtia_ccp_events": "kernel",
}
"""The categories of what runs on a device. They are the same for CUDA, ROCm, XPU and plug-ins."""

DEVICE_RANGE = "gpu_user_annotation"
"""The category of a range as a device sees it: from the first to the last piece of work that was launched in it."""

MEMORY = "[memory]"
"""The name of the instants at which memory was allocated or freed, where the profiler was asked for them."""

_RUNTIME = ("_runtime", "_driver")


def is_runtime_call(category: str) -> bool:
    """Whether it is a call of a device's runtime on the host: `cuda_runtime`, `xpu_driver`, `privateuse1_runtime`."""
    return category.endswith(_RUNTIME)


Thread = tuple[Any, Any]


@dataclass(slots=True, eq=False)
class Slice:
    """One event: `start` and `end` are in microseconds, `within` is the slice that contains it, `self_time`
    its own time without that of the slices directly within it."""

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
        """What contains it, the innermost first."""
        one = self.within
        while one is not None:
            yield one
            one = one.within


def slices_of(events: Iterable[Mapping[str, Any]], categories: Collection[str]) -> list[Slice]:
    """The complete events of these categories, by their beginning and the longer first."""
    found = [
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
    return sorted(found, key=lambda one: (one.start, -one.end))


def nest(slices: Sequence[Slice]) -> dict[Thread, list[Slice]]:
    """Set what contains each slice and its own time; gives the outermost slices of each thread.

    `slices` are in the order of `slices_of`. One that begins in another and ends after it is cut at that
    one's end: the profiler's clock is read a moment after a range has ended."""
    outermost: dict[Thread, list[Slice]] = {}
    open_: dict[Thread, list[Slice]] = {}
    for one in slices:
        stack = open_.setdefault(one.thread, [])
        while stack and stack[-1].end <= one.start:
            stack.pop()
        one.self_time = one.time
        # A slice is its parent's own time no more; nested deeper, it is taken from its parent alone.
        if stack:
            one.end = min(one.end, stack[-1].end)
            one.self_time = one.time
            one.within = stack[-1]
            stack[-1].children.append(one)
            stack[-1].self_time -= one.time
        else:
            outermost.setdefault(one.thread, []).append(one)
        stack.append(one)
    return outermost


def walk(outermost: Iterable[Slice]) -> Iterator[Slice]:
    """Every slice, each before those within it."""
    waiting = list(outermost)[::-1]  # a stack in place of recursion: Python calls nest deeper than a thousand
    while waiting:
        one = waiting.pop()
        yield one
        waiting.extend(reversed(one.children))

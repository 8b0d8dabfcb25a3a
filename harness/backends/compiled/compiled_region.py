"""One piece of Python that dynamo has captured, from its graph to the graphs that are compiled from it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...records.graph_record import Graph
from .compiled_bindings import GraphSignature


@dataclass(slots=True)
class CapturedRegion:
    """`reserve` gives the name of its forward graph, which its dynamo graph shares, when one is first needed.

    `modules` are the paths of its forward by autograd sequence number; `lowered` says that a compiler went on
    from dynamo's graph. `hash` is that of dynamo's graph.
    """

    reserve: Callable[[], str]
    signature: GraphSignature
    backend: str
    hash: str
    phase: str = "forward"
    modules: dict[int, str] = field(default_factory=dict)
    lowered: bool = False
    write_dynamo: Callable[[], None] | None = None
    _base: str = ""

    @property
    def base(self) -> str:
        self._base = self._base or self.reserve()
        return self._base

    def traced(self) -> None:
        """Dynamo will not trace the frame anew: its graph may be written."""
        write, self.write_dynamo = self.write_dynamo, None
        if write is not None:
            write()


@dataclass(slots=True)
class Executable:
    """A graph that can be executed: `base` is its name without a stage."""

    base: str
    hash: str
    note: Callable[[str, str, bool], None]
    ran: bool = False

    def executed(self) -> None:
        first, self.ran = not self.ran, True
        self.note(self.base, self.hash, first)


@dataclass(frozen=True, slots=True)
class PreGraph:
    """A graph as it goes into the compiler: `outputs` are in its order, None where it returns no value
    there."""

    graph: Graph
    outputs: Sequence[str | None]
    executable: Executable


class Counts:
    """What happened in the current step."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()

    def add(self, name: str) -> None:
        self._found[name] += 1

    @property
    def compiled(self) -> int:
        return self._found["compiled"] + self._found["dynamo"]

    def of(self, name: str) -> int:
        return self._found[name]

    def take(self) -> dict[str, int]:
        """The counts, which begin anew: an execution is `cached` when its graph was compiled before it."""
        found, self._found = self._found, Counter()
        names = ("compiled", "cached", "executed", "dynamo", "breaks")
        return {name: found[name] for name in names}


class Depth:
    """Whether this thread is inside of something, however often."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def __bool__(self) -> bool:
        return getattr(self._thread, "depth", 0) > 0

    @contextmanager
    def entered(self) -> Iterator[None]:
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread.depth -= 1

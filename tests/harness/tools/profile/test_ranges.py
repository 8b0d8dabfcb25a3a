"""Ranges lie within each other or beside each other, whatever the script does."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.observers.profile.trace_ranges import Ranges


class Written:
    """What a profiler would see: begins and ends in their order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.open: list[str] = []

    def begin(self, name: str) -> Written.Handle:
        self.events.append(("begin", name))
        self.open.append(name)
        return Written.Handle(self, name)

    class Handle:
        def __init__(self, written: Written, name: str) -> None:
            self._written = written
            self._name = name

        def __exit__(self, *_: object) -> None:
            assert self._written.open[-1] == self._name, "a range ends within another"
            self._written.events.append(("end", self._written.open.pop()))


def traced(ranges: Ranges) -> None:
    ranges.resume("step")


def test_a_phase_that_begins_in_a_block_is_split_at_its_end() -> None:
    written = Written()
    ranges = Ranges(written.begin)
    traced(ranges)
    ranges.phase("data")
    ranges.enter("model_build", "block")
    ranges.phase("forward")
    ranges.leave("model_build", "block")
    ranges.phase("backward")
    ranges.suspend()
    assert written.events == [
        ("begin", "step"),
        ("begin", "data"),
        ("end", "data"),
        ("begin", "model_build"),
        ("begin", "data"),
        ("end", "data"),
        ("begin", "forward"),
        ("end", "forward"),
        ("end", "model_build"),
        ("begin", "forward"),
        ("end", "forward"),
        ("begin", "backward"),
        ("end", "backward"),
        ("end", "step"),
    ]


def test_a_module_and_a_block_in_it_stay_within_the_phase() -> None:
    written = Written()
    ranges = Ranges(written.begin)
    traced(ranges)
    ranges.phase("forward")
    ranges.enter("fc", "module")
    ranges.enter("mine", "block")
    ranges.leave("mine", "block")
    ranges.leave("fc", "module")
    ranges.suspend()
    assert [name for kind, name in written.events if kind == "begin"] == ["step", "forward", "fc", "mine"]


def test_what_is_open_when_a_trace_begins_is_written() -> None:
    written = Written()
    ranges = Ranges(written.begin)
    ranges.enter("epoch", "block")
    ranges.phase("data")
    assert not written.events
    traced(ranges)
    assert written.open == ["step", "epoch", "data"]
    ranges.suspend()
    assert not written.open


def test_another_thread_has_ranges_of_its_own() -> None:
    written = Written()
    ranges = Ranges(written.begin)
    ranges.phase("backward")

    def recompute() -> None:
        ranges.enter("fc", "module")
        ranges.leave("fc", "module")

    other = threading.Thread(target=recompute)
    other.start()
    other.join()
    traced(ranges)
    assert written.open == ["step", "backward"]


MOVES = st.one_of(
    st.tuples(st.just("phase"), st.sampled_from(["", "forward", "backward", "optimizer"])),
    st.tuples(st.sampled_from(["enter", "leave"]), st.sampled_from(["a", "b", "module: m", "mark_step"])),
    st.tuples(st.sampled_from(["resume", "suspend"]), st.just("step")),
)


@given(st.lists(MOVES, max_size=40))
def test_any_order_of_moves_nests(moves: list[tuple[str, str]]) -> None:
    written = Written()
    ranges = Ranges(written.begin)
    traces = False
    for move, name in moves:
        if move == "phase":
            ranges.phase(name)
        elif move == "resume" and not traces:
            ranges.resume(name)
            traces = True
        elif move == "suspend":
            ranges.suspend()
            traces = False
        elif move in ("enter", "leave"):
            sort = "module" if name.startswith("module") else "cut" if name == "mark_step" else "block"
            getattr(ranges, move)(name, sort)
    ranges.suspend()
    assert not written.open

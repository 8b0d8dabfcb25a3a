"""Two streams of calls, made by hand, and how they come apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numdrift.harness.drift.call_difference import CallDifference, first_difference
from numdrift.harness.records.values.call_record import SETUP_PHASE, CallRecord

LINES = "/somewhere/train.py"


def call(
    op: str, given: Sequence[tuple[int, str]] = (), results: Sequence[tuple[int, str]] = (), **more: Any
) -> CallRecord:
    line = more.pop("line", 10)
    return CallRecord(
        **{
            "step": 0,
            "op": op and f"aten.{op}.default",
            "line": f"{LINES}:{line}",
            "phase": "forward",
            "tensors": given,
            "results": results,
            **more,
        }
    )


def difference(one: Sequence[CallRecord], other: Sequence[CallRecord], step: int = 0) -> CallDifference | None:
    return first_difference([(step, one)], [(step, other)])


ZEROS = call("zeros", results=[(0, "0")], line=3)


def test_equal_calls_have_no_difference() -> None:
    calls = [ZEROS, call("mul", [(0, "0")], [(1, "m")], numbers="2.0")]

    assert difference(calls, calls) is None


def test_an_op_that_gives_other_bits_on_equal_inputs_is_the_culprit_and_not_what_reads_them() -> None:
    def run(bits: str) -> list[CallRecord]:
        mul, exp = call("index_add", [(0, "0")], [(1, bits)], line=5), call("exp", [(1, bits)], [(2, f"e{bits}")])
        return [ZEROS, mul, exp]

    found = difference(run("p"), run("q"))

    assert found is not None and (found.what, found.call.name, found.call.line) == (
        "computed",
        "aten.index_add",
        f"{LINES}:5",
    )


def test_another_number_came_from_outside_unless_an_op_gave_it() -> None:
    def run(number: str, *, read: bool) -> list[CallRecord]:
        item = [call("_local_scalar_dense", [(0, "0")], [(-1, number)], line=4)] if read else []
        return [ZEROS, *item, call("mul", [(0, "0")], [(1, number)], numbers=f"{number}, False", line=5)]

    outside, given = (difference(run("1.5", read=read), run("1.25", read=read)) for read in (False, True))

    assert outside is not None and (outside.what, outside.numbers) == ("number", ("1.5", "1.25"))
    assert given is not None and (given.what, given.call.line) == ("computed", f"{LINES}:4")


def test_memory_that_no_op_gave_came_from_outside() -> None:
    def run(bits: str) -> list[CallRecord]:
        return [call("lift_fresh", [(7, bits)], [(7, "")], line=5), call("add", [(7, bits)], [(8, bits)])]

    found = difference(run("p"), run("q"))

    assert found is not None and (found.what, found.call.line) == ("outside", f"{LINES}:5")


def test_what_lies_in_memory_after_steps_that_were_not_recorded_came_from_these() -> None:
    def run(bits: str) -> list[tuple[int, list[CallRecord]]]:
        return [(0, [ZEROS]), (9, [call("mul", [(0, bits)], [(1, bits)])])]

    found = first_difference(run("p"), run("q"))

    assert found is not None and (found.what, found.step) == ("earlier", 9)


def test_what_changes_between_two_ops_was_written_by_none() -> None:
    def run(bits: str) -> list[CallRecord]:
        return [ZEROS, call("mul", [(0, bits)], [(1, bits)])]

    found = difference(run("p"), run("q"))

    assert found is not None and found.what == "changed"
    assert found.made is not None and found.made.name == "aten.zeros"


def test_memory_without_values_is_no_finding_until_it_is_read() -> None:
    def run(bits: str, *rest: CallRecord) -> list[CallRecord]:
        return [call("empty", results=[(3, bits)], line=4), *rest]

    fills = [call("fill_", [(3, bits)], [(3, "f")], written=[0]) for bits in "pq"]
    adds = [call("add_", [(3, bits)], [(3, f"a{bits}")], written=[0]) for bits in "pq"]
    reads = [call("mul", [(3, bits)], [(4, f"m{bits}")], line=6) for bits in "pq"]

    filled = difference(run("p", fills[0]), run("q", fills[1]))
    added = difference(run("p", adds[0]), run("q", adds[1]))
    read = difference(run("p", reads[0]), run("q", reads[1]))

    assert filled is None
    assert added is not None and (added.what, added.call.name) == ("unfilled", "aten.add_")
    assert read is not None and (read.what, read.call.line) == ("unfilled", f"{LINES}:6")
    assert read.made is not None and read.made.name == "aten.empty"


def adding(thread: int, before: str, part: str, after: str, memory: int = 0) -> CallRecord:
    return call("add_", [(memory, before), (20 + thread, part)], [(memory, after)], written=[0], thread=thread, line=7)


def test_threads_that_write_in_another_order_race() -> None:
    one = [ZEROS, adding(1, "0", "x", "0x"), adding(2, "0x", "y", "0xy"), call("mm", [(0, "0xy")], [(9, "r")])]
    other = [ZEROS, adding(2, "0", "y", "0y"), adding(1, "0y", "x", "0yx"), call("mm", [(0, "0yx")], [(9, "s")])]

    found = difference(one, other)

    assert found is not None and found.what == "race"
    assert (found.call.name, found.call.line) == ("aten.add_", f"{LINES}:7")


def test_a_thread_that_writes_something_else_does_not_race() -> None:
    def run(bits: str) -> list[CallRecord]:
        outside = call("lift_fresh", [(21, bits)], [(21, "")], thread=1, line=6)
        total = f"0{bits}"
        return [ZEROS, outside, adding(1, "0", bits, total), call("mm", [(0, total)], [(9, total)])]

    found = difference(run("x"), run("z"))

    # what the thread has added came to it from outside; its first reader there is the culprit
    assert found is not None and found.what != "race"
    assert found.call.line in (f"{LINES}:6", f"{LINES}:7")


def test_a_generator_at_another_state_and_the_line_that_puts_it_there() -> None:
    def own(state: str) -> CallRecord:
        return call("rand", results=[(1, state)], drew=[("own", state, f"{state}'")], line=8)

    def seeds(state: str) -> list[CallRecord]:
        seed = call("", drew=[("torch", "s0", state)], line=4)
        return [seed, call("rand", results=[(1, state)], drew=[("torch", state, f"{state}'")], line=8)]

    drawn, seeded = difference([own("p")], [own("q")]), difference(seeds("p"), seeds("q"))

    assert drawn is not None and (drawn.what, drawn.numbers[0], drawn.call.line) == ("generator", "own", f"{LINES}:8")
    assert seeded is not None and (seeded.what, seeded.call.line) == ("seeded", f"{LINES}:4")


def test_another_way_of_the_script_is_told_by_where_it_parts() -> None:
    left, right = (call("mul", [(0, "0")], [(1, "m")], line=line, phase=SETUP_PHASE) for line in (5, 8))

    found = difference([ZEROS, left], [ZEROS, right])
    ended = difference([ZEROS, left], [ZEROS])

    assert found is not None and found.what == "branch" and found.b is not None
    assert (found.call.line, found.b.line) == (f"{LINES}:5", f"{LINES}:8")
    assert ended is not None and ended.what == "branch" and ended.b is None


def test_a_call_is_written_and_read_as_it_is() -> None:
    one = adding(2, "a", "b", "c")

    assert CallRecord.from_line(one.to_line().decode()).to_line() == one.to_line()

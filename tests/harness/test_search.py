from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.search import Carrier, between, bisect_all, carriers, ddmin, first_failing


class Counted:
    """A predicate on sets that counts its calls."""

    def __init__(self, fails: Callable[[Sequence[int]], bool]) -> None:
        self.calls = 0
        self._fails = fails

    def __call__(self, tried: Sequence[int]) -> bool:
        self.calls += 1
        return self._fails(tried)


@st.composite
def failing(draw: st.DrawFn) -> tuple[int, set[int]]:
    size = draw(st.integers(1, 300))
    return size, draw(st.sets(st.integers(0, size - 1), max_size=8))


@given(failing())
def test_every_item_that_fails_alone_is_found_in_few_tests(case: tuple[int, set[int]]) -> None:
    # given
    size, faults = case
    fails = Counted(lambda tried: bool(faults.intersection(tried)))
    # when
    found = bisect_all(range(size), fails)
    # then
    assert found == sorted(faults)
    assert fails.calls <= 1 + len(faults) * (math.ceil(math.log2(size)) + 2)


def test_a_single_fault_takes_a_test_a_halving_and_none_takes_one() -> None:
    for fault in range(64):
        fails = Counted(lambda tried, fault=fault: fault in tried)  # type: ignore[misc]
        assert bisect_all(range(64), fails) == [fault]
        assert fails.calls <= 3 + 6
    nothing = Counted(lambda tried: False)
    assert bisect_all(range(64), nothing) == [] and nothing.calls == 1
    assert bisect_all([], nothing) == [] and nothing.calls == 1


@given(failing(), st.sets(st.frozensets(st.integers(0, 299), min_size=2, max_size=4), max_size=3))
def test_sets_that_fail_only_together_hide_no_item_that_fails_alone(
    case: tuple[int, set[int]], together: set[frozenset[int]]
) -> None:
    size, faults = case

    def fails(tried: Sequence[int]) -> bool:
        return bool(faults.intersection(tried)) or any(one.issubset(tried) for one in together)

    assert bisect_all(range(size), fails) == sorted(faults)


@st.composite
def monotone(draw: st.DrawFn) -> tuple[int, list[set[int]]]:
    """Sets of which each fails, and so does whatever contains one of them."""
    size = draw(st.integers(1, 24))
    return size, draw(st.lists(st.sets(st.integers(0, size - 1), min_size=1), min_size=1, max_size=4))


@given(monotone())
def test_of_what_fails_together_none_can_be_left_out(case: tuple[int, list[set[int]]]) -> None:
    # given
    size, cores = case

    def fails(tried: Sequence[int]) -> bool:
        return any(core.issubset(tried) for core in cores)

    # when
    found = ddmin(range(size), fails)
    # then
    assert fails(found)
    assert all(not fails([one for one in found if one != left]) for left in found)
    assert set(found) in cores


def test_two_that_act_together_are_found_among_many_in_few_tests() -> None:
    fails = Counted(lambda tried: {17, 90}.issubset(tried))
    assert sorted(ddmin(range(128), fails)) == [17, 90]
    assert fails.calls < 128


def test_the_example_of_the_module() -> None:
    def fails(tried: Sequence[int]) -> bool:
        return 3 in tried or {5, 6} <= set(tried)

    assert bisect_all(range(8), fails) == [3]
    assert ddmin([5, 6, 7], fails) == [5, 6]
    found = carriers(range(8), lambda sets: [float(3 in one) for one in sets])
    assert found.carriers == (Carrier((3,), 1.0, 0.0),)
    assert between([(0, False), (9, True)], 4) == [1, 3, 6, 8]


@given(st.integers(2, 200), st.data())
def test_the_first_place_that_fails_is_found_around_places_that_cannot_be_tested(
    count: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, count - 1))
    untestable = data.draw(st.sets(st.integers(1, max(1, count - 2))))
    tested = list[int]()

    def fails(place: int) -> bool | None:
        tested.append(place)
        return None if place in untestable else place >= first

    passing, failing = first_failing(count, fails)
    assert passing < first <= failing and {*range(passing + 1, failing)} <= untestable
    assert len(tested) == len(set(tested)) and not {0, count - 1} & set(tested)
    if not untestable:
        assert (passing, failing) == (first - 1, first) and len(tested) <= math.ceil(math.log2(count))

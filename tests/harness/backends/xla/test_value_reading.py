"""Which values of a step are looked for together, where holding some of them changes what XLA makes of it."""

from __future__ import annotations

from collections.abc import Collection

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.backends.xla import executed_again
from numdrift.harness.backends.xla.executed_again import Program, ReadValues, ValueKey, WantedValue, read_values


class Step:
    """A step of which the values `bad` cannot be held; `asked` are the groups that were."""

    def __init__(self, bad: Collection[int], *, repeats: bool = True) -> None:
        self.bad, self.repeats = {*bad}, repeats
        self.asked: list[list[int]] = []

    def __call__(self, program: Program, wanted: Collection[int]) -> dict[int, torch.Tensor] | None:
        self.asked.append(list(wanted))
        if not self.repeats or self.bad.intersection(wanted):
            return None
        return {number: torch.tensor(float(number)) for number in wanted}

    def read(self, names: str, unreadable: set[ValueKey] | None = None) -> ReadValues:
        """The values of ops of these names; those in capitals are fused."""
        counts: dict[str, int] = {}
        wanted = []
        for number, name in enumerate(names.split()):
            wanted.append(WantedValue(number, (name, counts.setdefault(name, 0)), name.isupper()))
            counts[name] += 1
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(executed_again, "executed_again", self)
            return read_values(Program(), wanted, set() if unreadable is None else unreadable)


def test_all_are_read_at_once_where_none_is_to_blame() -> None:
    step = Step(())
    assert {*step.read("a b B").found} == {0, 1, 2} and len(step.asked) == 1


def test_a_step_that_does_not_repeat_is_not_searched() -> None:
    step = Step((), repeats=False)
    known = step.read("a b B")
    assert not known.repeats and not known.found and len(step.asked) == 2


def test_what_is_not_fused_is_read_first() -> None:
    step = Step((2,))
    known = step.read("a b C D a")
    assert {*known.found} == {0, 1, 3, 4}
    assert step.asked[:3] == [[0, 1, 2, 3, 4], [], [0, 1, 4]]


@given(st.lists(st.sampled_from(["a", "b", "c", "D", "E"]), min_size=1, max_size=12), st.data())
def test_everything_but_what_is_to_blame_is_read(names: list[str], data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, len(names) - 1), max_size=2))
    step, unreadable = Step(bad), set[ValueKey]()
    known = step.read(" ".join(names), unreadable)
    assert {*known.found} == {*range(len(names))} - bad
    assert set(bad) == {number for number, name in enumerate(names) if (name, names[:number].count(name)) in unreadable}
    # What is known to be to blame is not held again.
    again = Step(bad)
    assert {*again.read(" ".join(names), unreadable).found} == {*known.found}
    assert len(again.asked) == 1


def test_executions_are_limited() -> None:
    step = Step(range(200))
    assert not step.read(" ".join(f"op{number}" for number in range(200))).found
    assert len(step.asked) <= executed_again.MOST_EXECUTIONS

"""What the proofs make of causes that act alone, and only together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from numdrift.harness.localize.causes.hybrid_tests import Drift, HybridTests, Infeasible
from numdrift.harness.localize.causes.proofs import Proofs, prove
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.suspects import Kind
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.tape.tape import Phase

THRESHOLD = 16.0


def cause(block: int, op: str, phase: Phase = "forward", kind: Kind = "kernel") -> Cause:
    return Cause(kind, phase, {"a": (op,), "b": (op,)}, (), (SwapSite(frozenset([block]), block),))


@dataclass
class Step:
    """A step whose drift follows from the blocks that are side b's."""

    blocks: frozenset[int]
    drift: Callable[[frozenset[int]], float]
    most: float = math.inf
    count: int = 0

    def have_time_for(self, count: int) -> bool:
        return self.count + count <= self.most

    def swapped_in(self, causes: Sequence[Cause]) -> Drift:
        return self._with(frozenset(block for one in causes for block in one.blocks))

    def swapped_out(self, causes: Sequence[Cause]) -> Drift:
        return self._with(self.blocks.difference(*(one.blocks for one in causes)))

    def _with(self, blocks: frozenset[int]) -> Drift:
        self.count += 1
        score = self.drift(blocks)
        if score < 0:
            raise Infeasible("it reads what nothing has made")
        return Drift({"w": score}, 0)


def proven(causes: Sequence[Cause], drift: Callable[[frozenset[int]], float], most: float = math.inf) -> Proofs:
    blocks = frozenset(block for one in causes for block in one.blocks)
    return prove(cast(HybridTests, Step(blocks, drift, most)), causes, THRESHOLD)


def both(blocks: frozenset[int]) -> float:
    """Beyond the threshold only where both first blocks are side b's."""
    return 40.0 if {0, 1} <= blocks else 1.0 * len(blocks)


def test_a_forward_and_its_backward_that_act_only_together_are_one() -> None:
    causes = [cause(0, "tanh"), cause(1, "tanh_backward", "backward"), cause(2, "sum", "backward")]

    found = proven(causes, both)

    (one,) = found.significant
    assert one.cause.blocks == {0, 1} and one.cause.ops["a"] == ("tanh", "tanh_backward")
    assert one.together == 0
    assert one.swapped_in is not None and one.swapped_in.score == 40.0
    assert [each.cause.ops["a"] for each in found.others] == [("sum",)]
    assert found.rest is not None and found.rest.score == 1.0


def test_other_ops_that_act_only_together_stay_two() -> None:
    found = proven([cause(0, "tanh"), cause(1, "mm", "backward"), cause(2, "sum", "backward")], both)

    assert [one.cause.ops["a"] for one in found.significant] == [("tanh",), ("mm",)]
    assert [one.together for one in found.significant] == [1, 1]


def test_what_acts_alone_stays_alone() -> None:
    causes = [cause(0, "tanh"), cause(1, "tanh_backward", "backward")]

    found = proven(causes, lambda blocks: 20.0 * len(blocks))

    assert [one.cause for one in found.significant] == causes


def test_parts_that_cannot_be_executed_alone_are_proven_together() -> None:
    causes = [cause(0, "tanh"), cause(1, "tanh_backward", "backward")]

    found = proven(causes, lambda blocks: -1.0 if len(blocks) == 1 else 40.0 * bool(blocks))

    (one,) = found.significant
    assert one.cause.blocks == {0, 1} and not one.why


def test_causes_that_undo_each_other_move_nothing_and_prove_nothing() -> None:
    # given a cause that another one undoes: alone, it drifts far beyond the threshold, but the step does not drift
    found = proven([cause(0, "mul"), cause(1, "mul")], lambda blocks: 90.0 if blocks == {0} else 0.0)

    assert not found.significant and found.whole.is_none
    assert [each.cause.ops["a"] for each in found.others] == [("mul",), ("mul",)]


def test_a_search_whose_time_is_over_proves_only_what_is_significant() -> None:
    causes = [cause(number, "mm") for number in range(6)]

    def fifth(blocks: frozenset[int]) -> float:
        return 40.0 if 4 in blocks else 1.0 * len(blocks)

    found = proven(causes, fifth, most=0)

    assert [measured.cause for measured in found.significant] == [causes[4]]
    assert (found.others, found.untested) == ((), 5)
    assert proven(causes, fifth).untested == 0 and len(proven(causes, fifth).others) == 5


def test_a_search_without_time_for_each_cause_tests_the_most_likely_one_and_the_others_together() -> None:
    causes = [cause(number, "mm") for number in range(16)]

    def ninth(blocks: frozenset[int]) -> float:
        return 40.0 if 8 in blocks else 1.0

    step = Step(frozenset(range(16)), ninth, most=12)
    found = prove(cast(HybridTests, step), causes, THRESHOLD, lambda each: float(8 in each.blocks))

    (measured,) = found.significant
    assert measured.cause is causes[8] and measured.swapped_out is not None and measured.swapped_out.score == 1.0
    # the whole, the cause in, the others in, without the cause (both tests of the proof, and what is left)
    assert step.count - 2 * len(found.others) <= 8 < 2 * len(causes)


def test_a_cause_that_is_not_the_most_likely_one_is_found_by_halving() -> None:
    causes = [cause(number, "mm") for number in range(16)]

    def two(blocks: frozenset[int]) -> float:
        return 40.0 if blocks & {3, 12} else 1.0

    step = Step(frozenset(range(16)), two, most=4)
    found = prove(cast(HybridTests, step), causes, THRESHOLD, lambda each: float(12 in each.blocks))

    assert [measured.cause for measured in found.significant] == [causes[3], causes[12]]
    assert (found.others, found.untested) == ((), 14)


def rounding_beside_a_fault(blocks: frozenset[int]) -> float:
    return 40.0 if 8 in blocks else 0.25 * len(blocks)


def test_causes_that_only_round_are_swapped_together_beside_a_fault() -> None:
    causes = [cause(number, "mm") for number in range(16)]
    step = Step(frozenset(range(16)), rounding_beside_a_fault)

    found = prove(cast(HybridTests, step), causes, THRESHOLD, rounding=[*causes[:8], *causes[9:]])

    assert [measured.cause for measured in found.significant] == [causes[8]]
    assert [measured.cause for measured in found.grouped] == [*causes[:8], *causes[9:]]
    scores = {
        (came.score, went.score)
        for measured in found.grouped
        if (came := measured.swapped_in) is not None and (went := measured.swapped_out) is not None
    }
    assert scores == {(3.75, 40.0)}
    assert {measured.beside for measured in found.grouped} == {14}
    assert step.count <= 9  # 34 if each cause is tested alone


def test_a_cause_that_only_rounds_is_found_where_it_causes_the_drift() -> None:
    # given a wrong cause that hardly moves the step, and a rounding that the step magnifies
    causes = [cause(number, "mm") for number in range(6)]

    found = prove(
        cast(HybridTests, Step(frozenset(range(6)), lambda blocks: 40.0 if 4 in blocks else 1.0)),
        causes,
        THRESHOLD,
        rounding=[*causes[:2], *causes[3:]],
    )

    assert [measured.cause for measured in found.significant] == [causes[4]]


def test_where_all_causes_only_round_each_is_tested() -> None:
    causes = [cause(number, "mm") for number in range(3)]

    found = prove(
        cast(HybridTests, Step(frozenset(range(3)), lambda blocks: 40.0 if 1 in blocks else 1.0)),
        causes,
        THRESHOLD,
        rounding=causes,
    )

    assert [measured.cause for measured in found.significant] == [causes[1]]
    assert [measured.cause for measured in found.others] == [causes[0], causes[2]] and not found.grouped

"""Whole localizations of random steps: no exception, no proof without a fault, and no proof that is not a real step's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import SIDES, Side
from numdrift.harness.localize.causes.hybrid_tests import Scorer
from numdrift.harness.localize.causes.localized_step import LocalizedStep
from numdrift.harness.localize.causes.proofs import is_beyond
from numdrift.harness.localize.execute.hybrid import Hybrid, Values, execute
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.execute.worker_calls import WorkerCalls
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.tape.replaying.replay import executions
from numdrift.harness.tape.serving.list_calls import list_ops, taken_apart
from numdrift.harness.tape.tape import Tape

from .altered_kernels import AlteredCalls, AlteredSide
from .pairs import THRESHOLD, differing, noise_of
from .random_steps import FAULTS, Instruction, Pair, Version, pairs, stepped, taped
from .test_late_reads import as_graph

CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def few(examples: int) -> settings:
    """The same few examples in every run."""
    phases = [Phase.generate]
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        suppress_health_check=CHECKS,
        phases=phases,
        deadline=None,
    )


MANY = settings(max_examples=1000, deadline=None, suppress_health_check=CHECKS, print_blob=True)
"""Other examples in every run; a failure prints how to repeat it."""


def real(version: Version) -> dict[str, Tensor]:
    """What a version computes; a program that torch refuses is no example."""
    try:
        return stepped(version)[1]
    except (RuntimeError, IndexError, ValueError):
        assume(False)
        raise


def localized(pair: Pair) -> tuple[dict[Side, Tape], LocalizedStep]:
    tapes, values = dict[Side, Tape](), dict[Side, Values]()
    versions: dict[Side, Version] = {"a": pair.a, "b": pair.wrong}
    for side, version in versions.items():
        plain = real(version)
        tapes[side] = taped(version)
        expected = tapes[side].expected()
        # a tape leaves out what follows from sparse tensors
        is_whole = all(one.op != "sparse" for one in version.program)
        values[side] = plain if is_whole else {name: value for name, value in plain.items() if name in expected}
        # then recording changes no bit
        assert not differing(expected, values[side])
    if list_ops(tapes["a"]) != list_ops(tapes["b"]):
        tapes = {side: taken_apart(tapes[side])[0] for side in SIDES}
    sides: dict[Side, StepSide] = {side: StepSide(tapes[side], side) for side in SIDES}
    own = frozenset[str]() if pair.a.batch else None
    found = localize_step(sides, noise_of(tapes["a"]), THRESHOLD, lambda text: None, own=own)
    for side in SIDES:
        assert not differing(execute(found.pair, Hybrid(side)), values[side])
    assert all(found.controls.values())
    return tapes, found


def proven(found: LocalizedStep) -> list[Culprit]:
    return [one for one in found.culprits if one.status == "culprit"]


def check_without_fault(pair: Pair) -> str:
    """Localize two versions that compute the same. Return the outcome in words."""
    tapes, found = localized(pair)
    is_equal = not differing(tapes["a"].expected(), tapes["b"].expected())
    if not is_equal and is_beyond(found.proofs.whole, THRESHOLD):
        return "the words are a fault"
    assert not [one for one in proven(found) if is_equal or one.significance == "beyond-rounding"]
    return "equal bits" if is_equal else "rounding"


def check_with_fault(pair: Pair) -> str:
    """Localize a planted fault. Return the outcome in words."""
    assert pair.fault is not None
    alone = real(pair.fault.planted(pair.a))
    tapes, found = localized(pair)
    scorer = Scorer(alone, noise_of(tapes["a"]))
    whole, significant = found.proofs.whole, found.proofs.significant
    if not is_beyond(whole, THRESHOLD):
        return "no effect"
    if is_beyond(scorer.drift(tapes["b"].expected()), THRESHOLD):
        return "the words are a fault"
    if not any(one.significance == "beyond-rounding" for one in proven(found)):
        return f"{pair.fault.kind}: unproven"
    # then what is proven is the step with nothing but the fault
    causes = [one.cause for one in significant]
    blocks = frozenset(block for cause in causes for block in cause.blocks)
    inputs = frozenset(value for cause in causes for value in cause.inputs)
    drift = scorer.drift(execute(found.pair, Hybrid("a", blocks, inputs)))
    assert not is_beyond(drift, THRESHOLD), (drift, proven(found))
    return f"{pair.fault.kind}: proven"


def check_with_wrong_kernel(pair: Pair, places: Sequence[int], *, kept: bool, alone: bool, unknown: set[int]) -> str:
    """Localize calls whose kernels are wrong in side b. Return the outcome in words."""
    real(pair.a)
    real(pair.b)
    a, recorded = taped(pair.a), taped(pair.b)
    computing = [one.position for one in executions(recorded)]
    wrong = {computing[place % len(computing)] for place in places} if computing else set[int]()
    b = AlteredSide(as_graph(recorded) if kept else recorded, wrong, kept, alone or not kept, unknown if kept else ())
    plain = AlteredSide(a, (), False, True, ())
    sides: dict[Side, StepSide] = {
        "a": StepSide(a, "a", plain.digests, cast(WorkerCalls, AlteredCalls(plain))),
        "b": StepSide(b.tape, "b", b.digests, cast(WorkerCalls, AlteredCalls(b))),
    }
    found = localize_step(sides, noise_of(a), THRESHOLD, lambda text: None)
    assert found.controls["a"] and (found.controls["b"] or unknown)
    if not b.altered:
        return "not altered"
    beyond = [one for one in proven(found) if one.significance == "beyond-rounding"]
    if pair.a.program != pair.b.program or not beyond:
        return f"kernel: {min(1, len(beyond))} proven"
    # then every cause contains a call with a wrong kernel
    home = found.pair.home["b"]
    homes = {
        home[number] for number, node in enumerate(found.pair.flows["b"].nodes) if node.execution.position in b.altered
    }
    for one in found.proofs.significant:
        assert homes & one.cause.blocks, (one.cause, beyond)
    return "kernel: right"


def step(*instructions: Instruction, **options: Any) -> Version:
    return Version(instructions, None, modules=False, **options)


TANH = Instruction("tanh", 4, 5, 0, 0.5, 0, "p0")
CUT = (Instruction("unfolded", 3, 2, 2, 1.5, 0, "p0"),)
JOINED = Instruction("joined", 3, 6, 5, 1.25, 0, "p2")
HALVED = Instruction("half_", 3, 1, 4, 1.5, 0, "p4")

FOUND = {
    # an argument of the model that no op reads has another layout on side b
    "an unread batch with gaps": Pair(step(TANH, batch=True), step(TANH, batch=True, laid_out=3)),
    # an op without effect and the ops of a check are paired with others, so that two differences undo each other
    "ops without effect": Pair(
        step(*CUT, JOINED, HALVED),
        step(
            *CUT,
            Instruction("times one", 3, 3, 3, 1.5, 0, "p2n1"),
            JOINED,
            Instruction("dead check", 3, 3, 3, 1.5, 0, "p4d0"),
            HALVED,
        ),
    ),
}
"""Pairs that have ended a localization, or for which it has proven a cause that is none."""


@pytest.mark.parametrize("name", FOUND)
def test_what_random_steps_have_found(name: str) -> None:
    check_without_fault(FOUND[name])


KERNELS = (
    pairs(),
    st.lists(st.integers(0, 60), min_size=1, max_size=2),
    *[st.booleans()] * 2,
    st.sets(st.integers(0, 40)),
)


@few(12)
@given(pairs(most=5))
def test_steps_in_other_words_are_no_fault(pair: Pair) -> None:
    check_without_fault(pair)


@few(12)
@given(pairs(faults=FAULTS, most=5))
def test_a_fault_that_is_proven_is_the_planted_one(pair: Pair) -> None:
    check_with_fault(pair)


@few(8)
@given(*KERNELS)
def test_a_wrong_kernel_that_is_proven_is_the_planted_one(
    pair: Pair, places: list[int], kept: bool, alone: bool, unknown: set[int]
) -> None:
    check_with_wrong_kernel(pair, places, kept=kept, alone=alone, unknown=unknown)


@pytest.mark.exhaustive
@MANY
@given(pairs())
def test_many_steps_in_other_words_are_no_fault(pair: Pair) -> None:
    check_without_fault(pair)


@pytest.mark.exhaustive
@MANY
@given(pairs(faults=FAULTS))
def test_many_faults_that_are_proven_are_the_planted_ones(pair: Pair) -> None:
    check_with_fault(pair)


@pytest.mark.exhaustive
@MANY
@given(*KERNELS)
def test_many_wrong_kernels_that_are_proven_are_the_planted_ones(
    pair: Pair, places: list[int], kept: bool, alone: bool, unknown: set[int]
) -> None:
    check_with_wrong_kernel(pair, places, kept=kept, alone=alone, unknown=unknown)

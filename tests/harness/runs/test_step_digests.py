from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.recorded_drift import differing_tensors
from numdrift.harness.records.values.digest_record import ABSENT, Digest, pack
from numdrift.harness.runs.step_digests import DigestColumns, StepDigests, have_equal_bits

NAMES = ["weight", "bias", "running_mean"]
PARAMETERS = NAMES[:2]

digests = st.builds(
    Digest,
    *[st.integers(1, 3), st.integers(0, 1), st.just(0), st.just(0)],
    *[st.sampled_from([0.5, -0.0, math.inf])] * 4,
)
steps = st.tuples(st.lists(digests, min_size=3, max_size=3), st.lists(st.none() | digests, min_size=2, max_size=2))
Step = tuple[list[Digest], list[Digest | None]]


def packed(step: Step) -> StepDigests:
    values, gradients = step
    records = [ABSENT if digest is None else pack(digest) for digest in [*values, *gradients]]
    return DigestColumns(NAMES, PARAMETERS).step(b"".join(records))


def decoded(step: Step) -> StepDigests:
    return StepDigests(dict(zip(NAMES, step[0], strict=True)), dict(zip(PARAMETERS, step[1], strict=True)))


@given(steps)
def test_packed_digests_are_the_digests_in_the_records(step: Step) -> None:
    assert packed(step) == decoded(step)
    assert repr(packed(step)) == repr(decoded(step))
    assert list(packed(step).gradients) == PARAMETERS and len(packed(step).values) == len(NAMES)


@given(steps, steps)
def test_packed_digests_differ_where_decoded_digests_differ(a: Step, b: Step) -> None:
    assert [*differing_tensors(packed(a), packed(b))] == [*differing_tensors(decoded(a), decoded(b))]


@given(steps)
def test_statistics_do_not_decide_equality(step: Step) -> None:
    values = [replace(digest, minimum=math.nan) for digest in step[0]]
    assert have_equal_bits(packed(step).values, packed((values, step[1])).values)


def test_the_same_records_of_other_tensors_are_not_equal() -> None:
    records = pack(Digest(7, 1, 0, 0, 0.0, 0.0, 0.0, 0.0))
    a, b = (DigestColumns([name], []).step(records) for name in ("weight", "bias"))
    assert not have_equal_bits(a.values, b.values)

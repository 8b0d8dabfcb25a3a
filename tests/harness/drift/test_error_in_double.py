"""Values whose drift is no larger than the errors of both sides."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.error_in_double import with_errors
from numdrift.harness.drift.step_noise import Noise, TensorNoise
from numdrift.harness.drift.step_score import StepScore, score_step

from .recordings import tensors

QUIET = Noise(4, 8, {"loss 0": TensorNoise(0.0, 1.0)})


def scored(a: float, b: float, exact: float) -> tuple[StepScore, StepScore]:
    """Return the score of a loss without and with its value in double; random rounding does not move the loss."""
    left, right = tensors({"loss 0": np.float32(a)}), tensors({"loss 0": np.float32(b)})
    before = score_step(left, right, QUIET)
    return before, with_errors(before, left, right, tensors({"loss 0": np.float64(exact)}))


def test_a_loss_of_one_large_logit_is_rounding() -> None:
    """The loss is log(1 + e), with e near half the spacing of numbers at 1, in two ways of summing up."""
    # given
    logits = torch.tensor([17.2, 0.0, 0.1], dtype=torch.float64)
    exact = float(torch.logsumexp(logits, 0) - logits[0])
    single = logits.float() - logits.float()[0]
    by_log = float(torch.log(single.exp().sum()))  # e is rounded to a multiple of the spacing at 1
    by_log1p = float(torch.log1p(single[1:].exp().sum())) * (1 + 2**-3)
    # when
    before, after = scored(by_log, by_log1p, exact)
    # then
    assert before.score > 1e3
    assert after.score < 16


def test_a_fault_of_one_side_keeps_its_score() -> None:
    for a, b in ((1.0, 1.01), (1.01, 1.0)):
        before, after = scored(a, b, 1.00000001)
        assert after.score > 1e4
        assert after.score <= before.score


def test_double_in_another_branch_says_nothing() -> None:
    before, after = scored(1.0, 1.001, 0.0)
    assert after == before
    assert before.score > 1e3


@pytest.mark.parametrize("exact", [math.nan, math.inf])
def test_a_step_in_double_that_is_not_finite_says_nothing(exact: float) -> None:
    before, after = scored(1.0, 1.001, exact)
    assert after == before


@given(*[st.floats(-8, 8, width=32)] * 3)
def test_no_score_becomes_larger_and_equal_values_stay_equal(a: float, b: float, exact: float) -> None:
    before, after = scored(a, b, exact)
    assert after.score <= before.score
    assert (after.score == 0) == (before.score == 0)

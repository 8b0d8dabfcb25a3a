from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.step_noise import Noise, TensorNoise
from numdrift.harness.drift.step_score import UNIT_ROUNDOFF, StepScore, score_step
from numdrift.harness.records.results.findings import TensorScore

from .recordings import tensors

float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6, width=32).filter(lambda v: v == 0 or abs(v) > 1e-6)
pairs = st.lists(st.tuples(moderate, moderate), min_size=1, max_size=20)


def noise_of(rms: float, **fields: Any) -> Noise:
    return Noise(3, 8, {"gradient 0 w": TensorNoise(rms, 1.0)}, **fields)


def one(a: Any, b: Any, rms: float = 0.0, dtypes: dict[str, str] | None = None) -> TensorScore:
    (found,) = score_step(
        tensors({"gradient 0 w": a}, dtypes), tensors({"gradient 0 w": b}, dtypes), noise_of(rms)
    ).tensors
    return found


@given(pairs, st.floats(0, 1e3))
def test_agrees_with_the_formula(values: list[tuple[float, float]], rms: float) -> None:
    # given
    a, b = np.array(values, np.float32).reshape(-1, 2).T
    # when
    found = one(a, b, rms)
    # then the plain formula gives the same
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    expected = np.linalg.norm(wide_b - wide_a) / (rms + 2.0**-24 * np.linalg.norm(wide_a) + 1e-43)
    assert found.score == pytest.approx(expected, rel=1e-9)
    assert found.distance == pytest.approx(np.linalg.norm(wide_b - wide_a))
    assert found.norm == pytest.approx(np.linalg.norm(wide_a))
    assert found.noise == rms


@given(pairs, st.floats(1e-3, 1e3), st.integers(-30, 30))
def test_scale_does_not_matter(values: list[tuple[float, float]], rms: float, exponent: int) -> None:
    a, b = np.array(values, np.float32).reshape(-1, 2).T
    factor = np.float32(2.0**exponent)
    assert one(a * factor, b * factor, rms * float(factor)).score == pytest.approx(one(a, b, rms).score)


@given(st.lists(st.tuples(float32, float32), max_size=20), st.floats(0, 1e3))
def test_zero_if_and_only_if_equal(values: list[tuple[float, float]], rms: float) -> None:
    a, b = np.array(values, np.float32).reshape(-1, 2).T
    assert (one(a, b, rms).score == 0.0) == bool(np.array_equal(a, b))


@given(st.lists(st.tuples(moderate, st.floats(0.01, 1)), min_size=1, max_size=20), st.floats(0, 1))
def test_farther_is_worse(values: list[tuple[float, float]], rms: float) -> None:
    a, d = np.array(values, np.float64).reshape(-1, 2).T
    scores = [one(a, a + factor * d, rms).score for factor in (0.5, 1.0, 4.0)]
    assert scores == sorted(scores)
    assert scores[0] < scores[2]


@given(pairs, st.floats(0, 1e3), st.floats(1.5, 10))
def test_more_noise_is_a_smaller_score(values: list[tuple[float, float]], rms: float, factor: float) -> None:
    a, b = np.array(values, np.float32).reshape(-1, 2).T
    assert one(a, b, rms * factor).score <= one(a, b, rms).score


def test_float64_of_any_magnitude() -> None:
    # given values whose difference is not a float, and whose squares are none
    huge, small = np.array([1.7e308]), np.array([1e-300, 2e-300])
    # then
    assert one(huge, -huge).score == pytest.approx(2 * 2.0**53)
    assert one(small, small * 1.5, rms=1e-300).score == pytest.approx(1e-300 * math.sqrt(1.25) / 1e-43)


@pytest.mark.parametrize(
    ("dtype_a", "dtype_b", "unit"),
    [
        ("float32", "float32", 2.0**-24),
        ("bfloat16", "float32", 2.0**-8),
        ("float16", "bfloat16", 2.0**-8),
        ("float32", "float64", 2.0**-24),
        ("float8_e4m3fn", "float8_e4m3fn", 2.0**-4),
    ],
)
def test_the_coarser_dtype_gives_the_floor(dtype_a: str, dtype_b: str, unit: float) -> None:
    # given
    name = "gradient 0 w"
    a, b = tensors({name: [1.0]}, {name: dtype_a}), tensors({name: [1.5]}, {name: dtype_b})
    # when
    found = score_step(a, b, noise_of(0.0))
    # then
    assert found.score == pytest.approx(0.5 / unit)


def test_roundoff_is_half_of_torchs_eps() -> None:
    # torch gives float8_e5m2fnuz the eps of three bits behind the point; it has two, as its name says.
    names = UNIT_ROUNDOFF.keys() - {"float8_e5m2fnuz"}
    known = {name: getattr(torch, name) for name in names if hasattr(torch, name)}
    assert len(known) >= 7
    assert {name: torch.finfo(dtype).eps / 2 for name, dtype in known.items()} == {
        name: UNIT_ROUNDOFF[name] for name in known
    }


@pytest.mark.parametrize(
    ("a", "b", "score", "why"),
    [
        ([math.nan, 1.0], [math.nan, 1.0], 0.0, ""),
        ([math.nan, 1.0], [1.0, 1.0], math.inf, "NaN or infinity in different places"),
        ([1.0, 1.0], [1.0, math.inf], math.inf, "NaN or infinity in different places"),
        ([0.0], [-0.0], 0.0, ""),
        ([1.0, 1.0], [[1.0], [1.0]], math.inf, "shape [2] against [2, 1]"),
        ([], [], 0.0, ""),
        ([1.0], np.array([1]), math.inf, "float32 against int64"),
    ],
)
def test_special_cases(a: Any, b: Any, score: float, why: str) -> None:
    found = one(a, b)
    assert (found.score, found.why) == (score, why)


def test_equal_infinities_leave_the_rest_comparable() -> None:
    found = one([math.inf, 3.0, 4.0], [math.inf, 3.0, 4.5], rms=0.25)
    assert found.score == pytest.approx(0.5 / (0.25 + 5 * 2.0**-24))


def step(a: dict[str, Any], b: dict[str, Any], noise: Noise | None = None) -> StepScore:
    return score_step(tensors(a), tensors(b), noise or Noise(7, 8, {}))


def test_a_value_that_one_side_lacks() -> None:
    # when
    found = step({"gradient 0 w": [1.0], "gradient 0 v": [1.0]}, {"gradient 0 v": [1.0], "state v.m": [0.0]})
    # then
    assert (found.step, found.score, found.tensor) == (7, math.inf, "gradient 0 w")
    assert found.why == "only the reference has it"
    assert {one.name: one.score for one in found.tensors} == {
        "gradient 0 w": math.inf,
        "state v.m": math.inf,
        "gradient 0 v": 0.0,
    }


@pytest.mark.parametrize("name", ["carried hidden", "evaluation 0 output 0"])
def test_a_value_that_only_one_script_is_known_to_have_says_nothing(name: str) -> None:
    with_it, without = {"loss 0": [1.0], name: [2.0]}, {"loss 0": [1.0]}
    for a, b in ((with_it, without), (without, with_it), (with_it, {"loss 0": [1.0], name: [2.0, 2.0]})):
        found = step(a, b)
        assert found.score == 0 and [tensor.name for tensor in found.tensors] == ["loss 0"]
    # where both have it, it counts
    assert step(with_it, {"loss 0": [1.0], name: [2.5]}).tensor == name


def test_integers_rank_below_floating_values() -> None:
    # given
    a = {"buffer n": np.array([1, 2, 3]), "parameter w": [1.0]}
    b = {"buffer n": np.array([1, 2, 4]), "parameter w": [1.5]}
    # when
    found = step(a, b)
    # then
    assert found.tensor == "parameter w"
    assert found.score == pytest.approx(0.5 * 2**24)
    assert found.discrete == ("buffer n",)
    assert [one.name for one in found.tensors] == ["parameter w", "buffer n"]
    assert (found.tensors[1].score, found.tensors[1].why) == (math.inf, "1 of 3 integers differ")


def test_integers_that_rounding_flips_say_nothing() -> None:
    # given
    noise = Noise(7, 8, {"buffer n": TensorNoise(0.0, 0.0, flips=3)})
    # when
    found = step({"buffer n": np.array([1])}, {"buffer n": np.array([2])}, noise)
    # then
    assert (found.score, found.tensor, found.discrete) == (0.0, "", ())
    assert found.tensors[0].why == "a discrete choice depends on rounding: the value also differs in 3 of 8 replays"


def test_of_equally_bad_values_the_first_of_the_step_is_named() -> None:
    bad, good = [math.nan], [1.0]
    names = ["state w.m", "parameter w", "loss 0", "gradient 0 w"]
    found = step(dict.fromkeys(names, good), dict.fromkeys(names, bad))
    assert [one.name for one in found.tensors] == ["loss 0", "gradient 0 w", "parameter w", "state w.m"]


def test_a_value_without_noise_of_its_own_takes_that_of_its_kind() -> None:
    # given gradients of relative noise 0.1, 0.2 and 0.9, and a parameter of another
    noise = Noise(
        0,
        8,
        {
            "gradient 0 a": TensorNoise(0.1, 1.0),
            "gradient 0 b": TensorNoise(0.4, 2.0),
            "gradient 0 c": TensorNoise(0.9, 1.0),
            "parameter a": TensorNoise(5.0, 1.0),
        },
    )
    # when
    found = step({"gradient 0 new": [3.0, 4.0]}, {"gradient 0 new": [3.0, 5.0]}, noise)
    # then
    assert found.score == pytest.approx(1.0 / (0.2 * 5), rel=1e-6)
    assert found.why == "the noise of this value is not known"


@pytest.mark.parametrize(
    ("noise", "taped", "replays"),
    [
        (noise_of(1.0), True, 8),
        (noise_of(1.0, taped=False), False, 8),
        (Noise(3, 8, {}, equal=False, reason="an op draws"), False, 0),
        (Noise.from_runs(3, tensors({"gradient 0 w": [1.0]}), []), False, 0),
    ],
)
def test_it_says_how_the_noise_was_measured(noise: Noise, taped: bool, replays: int) -> None:
    found = step({"gradient 0 w": [1.0]}, {"gradient 0 w": [1.0]}, noise)
    assert (found.taped, found.replays) == (taped, replays)


@pytest.mark.parametrize(
    ("reach", "score", "edge"),
    [
        (16.0, 100.0, False),  # in proportion to its strength
        (47.9, 100.0, False),
        (200.0, 2.0, True),  # a jump: twice the drift
        (1.0, 100.0, False),
    ],
)
def test_where_stronger_rounding_jumps_the_drift_is_held_against_the_jump(
    reach: float, score: float, edge: bool
) -> None:
    noise = Noise(7, 8, {"gradient 0 w": TensorNoise(1.0, 0.0, reach=reach)}, edge_replays=16)
    found = step({"gradient 0 w": [0.0]}, {"gradient 0 w": [100.0]}, noise)
    assert found.score == pytest.approx(score)
    assert (found.on_edge, found.looked_closer) == (edge, True)
    # and another step, whose noise is estimated from this one, has no such jump
    elsewhere = score_step(
        tensors({"gradient 0 w": [0.0]}),
        tensors({"gradient 0 w": [100.0]}),
        noise.at(8, tensors({"gradient 0 w": [0.0]})),
    )
    assert elsewhere.score == pytest.approx(100)
    assert not elsewhere.on_edge
    assert not elsewhere.looked_closer


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-3, 1.0]), st.sampled_from([0.0, 1e-15]))
def test_a_second_moment_is_scored_as_the_gradient_that_it_is_the_square_of(
    seed: int, size: float, kept: float
) -> None:
    # given the gradient of a bias before a batch normalization, which is rounding and nothing else (or one that is more),
    # and a mode that rounds 8 times as coarsely as the reference; the second moment adds its square to what it was
    drawn = np.random.default_rng(seed)
    value = size * drawn.standard_normal(256)
    noise, coarse = 1e-7 * drawn.standard_normal((9, 256)), 8e-7 * drawn.standard_normal(256)

    def step(rounding: Any, factor: float = 1.0) -> Any:
        gradient = value + rounding
        return tensors({"gradient 0 w": gradient, "state w.exp_avg_sq": factor * (kept + 0.001 * gradient**2)})

    reference, members = step(noise[0]), [step(one) for one in noise[1:]]
    measured = Noise.from_runs(0, reference, members)
    # then both are about as far away
    scores = {found.name: found.score for found in score_step(reference, step(coarse), measured).tensors}
    assert 3 < scores["gradient 0 w"] < 16
    assert 0.4 < scores["state w.exp_avg_sq"] / scores["gradient 0 w"] < 2.5
    # and one that is wrong is found where its gradient is more than rounding
    found = score_step(reference, step(noise[0], 1.01), measured)
    assert found.tensor == "state w.exp_avg_sq" and (found.score > 30 or not size)


def test_what_is_no_second_moment_keeps_its_score() -> None:
    noise = Noise(0, 8, {"gradient 0 a.w": TensorNoise(1.0, 0.1), "gradient 1 a.w": TensorNoise(0.0, 0.1)})
    one = Noise(0, 8, {"gradient 0 a.w": TensorNoise(1.0, 0.1)})
    assert noise.of_gradient("state a.w.exp_avg_sq", 400.0) == 400.0  # of one of its gradients no noise is known
    assert one.of_gradient("state a.w.exp_avg_sq", 400.0) == pytest.approx(math.sqrt(0.01 + 480) - 0.1)
    for name in ("state b.w.exp_avg_sq", "state w.exp_avg_sq", "parameter a.w", "state a.w"):
        assert one.of_gradient(name, 400.0) == 400.0
    assert one.of_gradient("state a.w.exp_avg_sq", math.inf) == math.inf
    # a second moment that is negative somewhere is none
    a, b = np.array([1.0, 1.0]), np.array([1.0, -1.0])
    known = Noise(0, 8, {**one.tensors, "state a.w.m": TensorNoise(0.01, 1.0)})
    for right, expected in (
        (b, 200.0),
        (a + 2.0, known.of_gradient("state a.w.m", math.sqrt(8) / 0.01)),
    ):
        (found,) = score_step(tensors({"state a.w.m": a}), tensors({"state a.w.m": right}), known).tensors
        assert found.score == pytest.approx(expected, rel=1e-4)


def test_a_value_computed_outside_of_torch_is_as_noisy_as_what_ops_left_to_the_script() -> None:
    # given 4 elements close to 0, and what a tanh rounds off near 1
    a = {"carried act": np.full(4, 0.01, np.float32), "parameter w": np.ones(4, np.float32)}
    b = {"carried act": np.full(4, 0.01 + 3e-8, np.float32), "parameter w": np.ones(4, np.float32) + 2.0**-23}
    left = 2e-8
    # when
    alone, beside = (step(a, b, Noise(3, 8, {}, left=noise)) for noise in (0.0, left))
    # then only the script's own value is compared with that noise
    act, w = ({tensor.name: tensor.score for tensor in found.tensors} for found in (alone, beside))
    apart = np.linalg.norm(b["carried act"].astype(float) - a["carried act"].astype(float))
    assert w["carried act"] == pytest.approx(apart / (2 * left + 2.0**-24 * 0.02), rel=1e-3)
    assert act["carried act"] > 16 > w["carried act"] and act["parameter w"] == w["parameter w"]
    # and a fault stays one
    wrong = b | {"carried act": np.full(4, 0.011, np.float32)}
    assert step(a, wrong, Noise(3, 8, {}, left=left)).score > 1000
    # and a noise of its own counts if it is larger
    own = Noise(3, 8, {"carried act": TensorNoise(1e-3, 0.02)}, left=left)
    assert step(a, b, own).tensors[-1].score < 1e-3

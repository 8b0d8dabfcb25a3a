from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.step_noise import Noise, TensorNoise, pooled, read_noise
from numdrift.harness.drift.step_score import score_step
from numdrift.harness.errors import JournalError

from .recordings import tensors

RECORD = {
    "schema": 1,
    "step": 12,
    "calls": 528,
    "replays": 8,
    "seconds": {"replay": 0.01, "rounded": 0.06},
    "equal": True,
    "differs": [],
    "reason": None,
    "tensors": {
        "gradient 0 net.weight": {"rms": 1.2e-7, "flips": 0, "norm": 0.3},
        "buffer n": {"rms": 0.0, "flips": 2, "norm": 0.0},
    },
}


def write(run: Path, record: Any) -> None:
    (run / "tapes").mkdir(exist_ok=True)
    (run / "tapes" / "noise-000012.json").write_text(record if isinstance(record, str) else json.dumps(record))


def test_reads_what_a_tape_left(tmp_path: Path) -> None:
    # given
    write(tmp_path, RECORD)
    # when
    noise = read_noise(tmp_path, 12)
    # then
    assert noise is not None
    assert (noise.step, noise.replays, noise.equal, noise.taped, noise.measured) == (12, 8, True, True, True)
    assert noise.tensors["gradient 0 net.weight"] == TensorNoise(1.2e-7, 0.3, 0)
    assert noise.tensors["gradient 0 net.weight"].relative == pytest.approx(4e-7)
    assert noise.tensors["buffer n"] == TensorNoise(0.0, 0.0, 2)
    assert read_noise(tmp_path, 13) is None


def test_a_step_that_does_not_replay_has_no_noise(tmp_path: Path) -> None:
    write(tmp_path, {**RECORD, "equal": False, "reason": "an op draws", "differs": ["loss 0"]})
    noise = read_noise(tmp_path, 12)
    assert noise is not None
    assert (noise.equal, noise.reason, noise.differs, noise.measured) == (
        False,
        "an op draws",
        ("loss 0",),
        False,
    )


@pytest.mark.parametrize(
    "record",
    [
        "{",
        "[]",
        {**RECORD, "schema": 2},
        {**RECORD, "step": 11},
        {**RECORD, "tensors": []},
        {**RECORD, "equal": "yes"},
        {**RECORD, "tensors": {"loss 0": {"rms": -1.0, "flips": 0, "norm": 1.0}}},
        {**RECORD, "tensors": {"loss 0": {"rms": "nan", "flips": 0, "norm": 1.0}}},
        {**RECORD, "tensors": {"loss 0": {"flips": 0, "norm": 1.0}}},
        {key: value for key, value in RECORD.items() if key != "replays"},
    ],
)
def test_damage_is_a_journal_error_that_names_the_file(tmp_path: Path, record: Any) -> None:
    write(tmp_path, record)
    with pytest.raises(JournalError, match=r"noise-000012\.json"):
        read_noise(tmp_path, 12)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_noise_of_runs_agrees_with_numpy(count: int, seed: int) -> None:
    # given
    rng = np.random.default_rng(seed)
    reference = rng.normal(size=5).astype(np.float32)
    others = [(reference + rng.normal(size=5) * 1e-3).astype(np.float32) for _ in range(count)]
    # when
    noise = Noise.from_runs(4, tensors({"loss 0": reference}), [tensors({"loss 0": one}) for one in others])
    # then
    wide = np.stack(others).astype(np.float64) - reference
    assert noise.tensors["loss 0"].rms == pytest.approx(np.sqrt((wide**2).sum(axis=1).mean()))
    assert noise.tensors["loss 0"].norm == pytest.approx(np.linalg.norm(reference.astype(np.float64)))
    assert (noise.step, noise.replays, noise.taped) == (4, count, False)


def test_flips_count_the_runs_in_which_integers_differ() -> None:
    reference = tensors({"buffer n": np.array([1, 2])})
    others = [tensors({"buffer n": np.array(one)}) for one in ([1, 2], [1, 3], [0, 3])]
    assert Noise.from_runs(0, reference, others).tensors["buffer n"].flips == 2


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_at_another_step_the_relative_noise_is_the_same(scale: float, rms: float) -> None:
    # given
    here = Noise(0, 8, {"parameter w": TensorNoise(rms, 5.0, 0)})
    there = tensors({"parameter w": np.array([3.0 * scale, 4.0 * scale])})
    # when
    moved = here.at(9, there)
    # then
    assert (moved.step, moved.taped, moved.replays) == (9, False, 8)
    assert moved.tensors["parameter w"].relative == pytest.approx(rms / 5.0)
    assert moved.tensors["parameter w"].rms == pytest.approx(rms * scale)


def test_at_another_step_what_was_zero_keeps_its_noise_and_integers_their_flips() -> None:
    here = Noise(0, 8, {"parameter w": TensorNoise(0.5, 0.0), "buffer n": TensorNoise(0.0, 0.0, 3)})
    moved = here.at(1, tensors({"parameter w": [3.0, 4.0], "buffer n": np.array([1])}))
    assert moved.tensors == {"parameter w": TensorNoise(0.5, 5.0, 0), "buffer n": TensorNoise(0.0, 0.0, 3)}


def test_a_step_without_a_tape_has_at_least_the_median_of_the_noise() -> None:
    # given a value that is exact in the nearest step, and one that jumps in another one
    def taped(at: int, *rms: float) -> Noise:
        return Noise(
            at, 8, {f"gradient 0 {name}": TensorNoise(each, 2.0) for name, each in zip("vw", rms, strict=True)}
        )

    noises = [taped(0, 2e-4, 1e-6), taped(10, 0.0, 2e-6), taped(20, 4e-4, 0.5)]
    # when
    noise = pooled(11, noises)
    # then
    assert {name: tensor.rms for name, tensor in noise.tensors.items()} == pytest.approx(
        {"gradient 0 v": 2e-4, "gradient 0 w": 2e-6}
    )
    assert (noise.step, noise.replays) == (10, 8)
    # a value that the nearest step lacks has the noise of another one, and one step stays as it is
    assert pooled(1, [Noise(2, 8, {}), noises[0]]).tensors == noises[0].tensors
    assert pooled(5, noises[:1]) == noises[0]
    assert pooled(11, [Noise(step, 8, {}, left=left) for step, left in ((10, 1e-9), (0, 3.0), (5, 2.0))]).left == 2.0


def test_a_member_of_the_ensemble_scores_about_one() -> None:
    # given values with rounding of one size, eight times
    rng = np.random.default_rng(1)
    exact = rng.normal(size=2000)
    reference, *others, held_out = (
        (exact * (1 + rng.uniform(-1, 1, 2000) * 1e-4)).astype(np.float32) for _ in range(10)
    )
    noise = Noise.from_runs(0, tensors({"loss 0": reference}), [tensors({"loss 0": one}) for one in others])
    # when
    score = score_step(tensors({"loss 0": reference}), tensors({"loss 0": held_out}), noise).score
    # then
    assert score == pytest.approx(1.0, abs=0.1)

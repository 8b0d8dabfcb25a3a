"""The weights of a batch's parts, against gradients that are made of weighted parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numdrift.harness.drift.setup.split_step import PartWeights, last_backward, of_whole_step, part_weights
from numdrift.harness.drift.step_noise import Noise, TensorNoise

from .recordings import tensors

Floats = NDArray[np.float64]

SHAPES = {"net.0.weight": (24, 8), "net.0.bias": (24,)}
THRESHOLD = 20.0


def gradients(parts: int, seed: int = 0) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(parts, *shape)) for name, shape in SHAPES.items()}


def found(weights: Sequence[float], *, fault: float = 0.0, shapes: Sequence[str] = tuple(SHAPES)) -> PartWeights | None:
    """The weights in a step whose whole gradient weights the parts so, with an error that no weight makes."""
    of_parts = {name: value for name, value in gradients(len(weights)).items() if name in shapes}
    whole = {name: np.tensordot(np.array(weights), value, 1) for name, value in of_parts.items()}
    bent = {name: value + fault * np.abs(value) for name, value in whole.items()}
    a = {f"gradient 0 {name}": value.astype(np.float32) for name, value in bent.items()}
    b = {
        f"gradient {number} {name}": value[: number + 1].sum(0).astype(np.float32)
        for number in range(len(weights))
        for name, value in of_parts.items()
    }
    noise = {
        key: TensorNoise(1e-7 * float(np.linalg.norm(value)), float(np.linalg.norm(value))) for key, value in a.items()
    }
    return part_weights(tensors(a), tensors(b), Noise(0, 8, noise))


def test_the_weights_that_remove_the_drift_are_found() -> None:
    weights = found([0.88, 1.16, 0.86, 1.1])
    assert weights is not None
    assert weights.weights == pytest.approx([0.88, 1.16, 0.86, 1.1], rel=1e-5)
    assert weights.after < THRESHOLD < weights.before


def test_parts_of_the_right_weights_have_no_drift_to_remove() -> None:
    weights = found([1.0, 1.0, 1.0, 1.0])
    assert weights is not None and weights.before < THRESHOLD and weights.weights == pytest.approx([1.0] * 4, rel=1e-5)


def test_no_weights_remove_the_drift_of_a_fault() -> None:
    weights = found([1.0, 1.0, 1.0, 1.0], fault=1e-3)
    assert weights is not None and weights.after > THRESHOLD


def test_few_elements_prove_no_weights() -> None:
    assert found([0.9, 1.1], shapes=["net.0.bias"]) is None


def test_a_step_keeps_what_does_not_depend_on_the_number_of_calls() -> None:
    values: dict[str, Any] = {"loss 0": 1.0, "gradient 0 w": [1.0], "loss 1": 1.0, "gradient 1 w": [3.0]}
    values |= {"parameter w": [2.0], "carried logits": [0.0], "evaluation 0 output 0": [5.0]}
    step = tensors(values)
    assert last_backward(step) == 1
    kept = of_whole_step(step, 0)
    assert {name: value.tolist() for name, value in kept.tensors.items()} == {
        "gradient 0 w": [3.0],
        "parameter w": [2.0],
        "evaluation 0 output 0": [5.0],
    }

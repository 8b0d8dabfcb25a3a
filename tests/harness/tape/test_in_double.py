from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from numdrift.harness.tape.replaying.in_double import exact_values

from .trainings import Scaled, Training, recorded, started


def doubled(training: Training) -> Training:
    """The same training, in float64 from the same values on."""
    twin = copy.deepcopy(training)

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.double()
        return tuple(map(wide, value)) if isinstance(value, tuple) else value

    for state in twin.optimizer.state.values():
        for key, value in list(state.items()):
            state[key] = wide(value)
    for parameter in twin.model.parameters():
        parameter.data, parameter.grad = parameter.data.double(), wide(parameter.grad)
    for module in twin.model.modules():
        for name, buffer in module._buffers.items():
            module._buffers[name] = wide(buffer)
    for name, value in list(vars(twin).items()):
        if name in ("x", "y", "hidden"):
            setattr(twin, name, wide(value))
        if name == "average":
            setattr(twin, name, [one.double() for one in value])
    return twin


EXACT = [
    "mlp",
    "foreach",
    "fused",
    "transformer",
    "sam",
    "images",
    "gru",
    "accumulated",
    "averaged",
    "in-place",
]


@pytest.mark.parametrize("name", [*EXACT, "embeddings"])
def test_the_values_are_those_of_a_training_in_double(name: str) -> None:
    # given a step in float32, and independently of any tape the same step in float64 from the same values
    training = started(name)
    twin = doubled(training)
    state = torch.get_rng_state()
    expected = twin.values()
    torch.set_rng_state(state)
    # when
    found, not_exact = exact_values(training.taped())
    # then
    assert not not_exact
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert found[key].dtype == value.dtype, key
        scale = float(value.double().norm()) + 1e-3 * (key.startswith("gradient"))
        if name in ("mlp", "foreach", "fused", "accumulated", "images") and key.endswith(BEFORE_NORM):
            continue  # its gradient is zero by mathematics: what adaptive optimizers make of it is noise in any precision
        assert float((found[key].double() - value.double()).norm()) <= 1e-7 * tolerance(name) * scale, key


BEFORE_NORM = ("0.bias", "0.bias.exp_avg", "0.bias.exp_avg_sq", "0.bias.momentum_buffer")


def tolerance(name: str) -> float:
    """How far numbers that a script reads in the middle of a step (`.item()`) are from what double would read."""
    return 10.0 if name == "in-place" else 1e-4


def test_the_exact_values_are_closer_to_the_truth_than_what_was_recorded() -> None:
    value = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    with recorded() as recorder:
        recorder.watch("loss 0", value.exp().sum() - value.double().exp().sum().float())
    tape = recorder.tape()
    found, _ = exact_values(tape)
    truth = float(value.double().exp().sum() - value.double().exp().sum())
    assert abs(float(found["loss 0"]) - truth) < 1e-9
    assert found["loss 0"].dtype == torch.float64


def test_an_op_without_a_double_kernel_is_named() -> None:
    _, not_exact = exact_values(started("lstm").taped())
    assert set(not_exact) == {"aten.mkldnn_rnn_layer.default", "aten.mkldnn_rnn_layer_backward.default"}


def test_a_gradient_scaler_is_executed_in_double() -> None:
    training = started("scaled")
    twin = doubled(training)
    assert isinstance(training, Scaled) and isinstance(twin, Scaled)
    found, not_exact = exact_values(training.taped())
    # the scaler wants float32, so the independent step does without: its scale is a power of two
    twin.optimizer.zero_grad()
    F.cross_entropy(twin.model(twin.x), twin.y).backward()
    twin.optimizer.step()
    assert set(not_exact) == {"aten._amp_update_scale_.default"}
    for name, parameter in twin.model.named_parameters():
        assert torch.allclose(found[f"parameter {name}"], parameter, rtol=1e-13)


def test_casts_to_lower_precision_do_nothing() -> None:
    # given bfloat16 in the middle, and dtypes as arguments
    value = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    with recorded() as recorder:
        low = value.bfloat16() @ value.to(torch.bfloat16)
        recorder.watch("loss 0", low.float().sum(dtype=torch.float32))
        recorder.watch("loss 1", low)
    # when
    found, not_exact = exact_values(recorder.tape())
    # then
    exact = value.double() @ value.double()
    assert not not_exact
    assert torch.allclose(found["loss 1"], exact, rtol=1e-12) and found["loss 1"].dtype == torch.float64
    assert float(found["loss 0"]) == pytest.approx(float(exact.sum()), rel=1e-12)


def test_what_an_op_makes_of_integers_is_a_double() -> None:
    counts = torch.tensor([1, 2, 3])
    with recorded() as recorder:
        recorder.watch("loss 0", (counts / 3) + counts * 0.1 + torch.full((3,), 1 / 3))
    found, _ = exact_values(recorder.tape())
    expected = counts.double() / 3 + counts.double() * 0.1 + 1 / 3
    assert torch.allclose(found["loss 0"], expected, rtol=1e-15)
    assert torch.get_default_dtype() == torch.float32


def test_what_was_drawn_is_taken_and_what_drawing_rounded_is_named() -> None:
    torch.manual_seed(0)
    mean = torch.rand(5)
    with recorded() as recorder:
        noise = torch.randn(5)
        recorder.watch("loss 0", noise * torch.rand_like(noise))
        recorder.watch("loss 1", F.dropout(mean, 0.5))
        recorder.watch("loss 2", torch.normal(mean, 1.0))
        recorder.watch("loss 3", torch.native_dropout(mean, 0.5, True)[0])
    tape = recorder.tape()
    found, not_exact = exact_values(tape)
    assert torch.allclose(found["loss 0"], tape.expected()["loss 0"].double(), rtol=1e-6)
    for name in ("loss 1", "loss 3"):
        kept = tape.expected()[name] != 0
        assert torch.equal(found[name], torch.where(kept, mean.double() * 2, 0.0))
    assert not_exact == ("aten.normal.Tensor_float",)


def test_complex_numbers_are_held_by_their_parts() -> None:
    start = torch.randn(4, dtype=torch.complex64)
    with recorded() as recorder:
        value = torch.fft.fft(start)
        torch.view_as_real(value).mul_(1 / 3)
        recorder.watch("loss 0", value)
    found, not_exact = exact_values(recorder.tape())
    expected = torch.fft.fft(start.to(torch.complex128))
    assert not not_exact
    assert torch.allclose(found["loss 0"], expected * (1 / 3), rtol=1e-12)


def test_bytes_that_are_used_as_other_numbers_are_refused() -> None:
    with recorded() as recorder:
        bits = torch.ones(3).mul(2).view(torch.int32)
        recorder.watch("loss 0", bits + 1)
    with pytest.raises(Exception, match="also used as int32"):
        exact_values(recorder.tape())

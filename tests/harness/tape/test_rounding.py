from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.tape.op_names import sums
from numdrift.harness.tape.replaying import ensemble
from numdrift.harness.tape.replaying.ensemble import measure_noise
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, is_same
from numdrift.harness.tape.replaying.rounding import AMPLITUDE, POOL, RandomRounding
from numdrift.harness.tape.tape import Tape

from .trainings import TRAININGS, Plain, recorded, started


def one_op(compute: Callable[[], torch.Tensor]) -> Tape:
    with recorded() as recorder:
        recorder.watch("loss 0", compute())
    return recorder.tape()


def rounded(tape: Tape, seed: int = 0) -> torch.Tensor:
    return Replay(tape).run(RandomRounding(seed))["loss 0"]


@pytest.mark.parametrize("name", TRAININGS)
def test_rounding_moves_every_parameter_by_little(name: str) -> None:
    noise = measure_noise(started(name).taped(), 8)
    assert noise.equal and noise.reason is None and noise.replays == 8 and not noise.dropped
    assert not noise.unmoved
    parameters = [one for key, one in noise.tensors.items() if key.startswith("parameter ")]
    assert parameters and all(one.rms > 0 for one in parameters)
    losses = [one for key, one in noise.tensors.items() if key.startswith("loss ")]
    coarse = 2**-7 if name == "autocast" else 2**-23
    assert all(0 < one.rms < 200 * coarse * one.norm for one in losses)


def test_the_same_seed_gives_the_same_member() -> None:
    replay = Replay(started("mlp").taped())
    first, again, other = (replay.run(RandomRounding(seed)) for seed in (5, 5, 6))
    assert all(is_same(first[name], again[name]) for name in first)
    assert not is_same(first["parameter 0.weight"], other["parameter 0.weight"])


def test_the_spread_is_that_of_the_precision() -> None:
    # given one training in two precisions
    spreads = {}
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        noise = measure_noise(Plain(dtype).taped(), 16)
        spreads[dtype] = {name: one.rms / one.norm for name, one in noise.tensors.items()}
    # then
    expected = torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps
    for name in ("loss 0", "gradient 0 0.weight", "parameter 2.weight"):
        found = spreads[torch.float32][name] / spreads[torch.float64][name]
        assert expected / 4 < found < expected * 4


@given(
    st.floats(1e-30, 1e30),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_a_rounded_result_is_within_the_formula(value: float, dtype: torch.dtype, seed: int) -> None:
    # given an op whose result is exactly x
    start = torch.full((64,), value, dtype=dtype) / 2
    tape = one_op(lambda: start * 2)
    exact = tape.expected()["loss 0"].double()
    # when
    found = rounded(tape, seed).double()
    # then |x' - x| <= 0.75 eps x, and half an ulp for each of two roundings
    eps = torch.finfo(dtype).eps
    assert bool(((found - exact).abs() <= (0.75 + 0.5 + 0.5) * eps * exact.abs()).all())


def test_rounding_is_not_biased() -> None:
    start = torch.linspace(1, 2, 200_000)
    tape = one_op(lambda: start * 1.0)
    shares = (rounded(tape).double() - start.double()) / start.double() / torch.finfo(torch.float32).eps
    # The perturbation has a standard deviation of 1.5 / sqrt(12) eps, before its result is rounded.
    assert 0.35 < float(shares.std()) < 0.65
    assert abs(float(shares.mean())) < 5 * float(shares.std()) / math.sqrt(len(start)) + 0.01


def test_what_is_not_finite_and_what_is_zero_stays() -> None:
    start = torch.tensor([float("inf"), -float("inf"), 0.0, -0.0])
    tape = one_op(lambda: start * 1.0)
    assert torch.equal(rounded(tape), start)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.relu(x),
        lambda x: x[torch.tensor([2, 0])],
        lambda x: torch.cat([x, -x]),
        lambda x: x.double(),
        lambda x: torch.where(x > 0, x, x.abs()),
        lambda x: x.sort().values,
        lambda x: x.amax(),
        lambda x: torch.empty(50).fill_(1.1),
        lambda x: torch.full((50,), 1.1),
        lambda x: x.index_put((torch.tensor([1]),), torch.tensor(1.1)),
        lambda x: (x > 0).float(),
        lambda x: (x > 0).long().bfloat16(),
        lambda x: x.sign().bfloat16(),
        lambda x: torch.div(x, 0.1, rounding_mode="floor"),
        lambda x: F.interpolate(x.view(1, 1, 50), scale_factor=2.0),
    ],
)
def test_ops_that_do_not_round_are_left_alone(compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
    start = torch.randn(50, generator=torch.Generator().manual_seed(0))
    tape = one_op(lambda: compute(start))
    assert is_same(rounded(tape), tape.expected()["loss 0"])


@pytest.mark.parametrize(
    "compute",
    [
        torch.exp,
        torch.sum,
        lambda x: x.bfloat16(),
        lambda x: torch.empty(50).bfloat16().copy_(x),
        lambda x: (x * 1e9).long().float(),
        lambda x: x / 0.1,
        lambda x: x.index_put((torch.tensor([1]),), torch.tensor(1.1), accumulate=True),
    ],
)
def test_ops_that_round_are_not(compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
    start = torch.randn(50, generator=torch.Generator().manual_seed(0))
    tape = one_op(lambda: compute(start))
    assert any(not is_same(rounded(tape, seed), tape.expected()["loss 0"]) for seed in range(8))


def test_the_inputs_of_a_sum_are_rounded_on_copies() -> None:
    # given pairs that cancel, so that a sum has no rounding of its own
    pairs = torch.tensor([[1e6], [-1e6]]).repeat(1, 500)
    tape = one_op(lambda: pairs.sum(0))
    # then the sums spread as their inputs do: sqrt(2) * 0.43 eps * 1e6 = 0.07, and the rounding to multiples of 1/16
    assert not tape.expected()["loss 0"].any()
    assert 0.05 < float(rounded(tape).std()) < 0.12
    assert is_same(pairs, torch.tensor([[1e6], [-1e6]]).repeat(1, 500))


def test_sums_are_known_by_their_names() -> None:
    known = [
        "mm",
        "addmm",
        "bmm",
        "convolution_backward",
        "native_layer_norm_backward",
        "_softmax",
        "mean",
        "nll_loss_forward",
    ]
    assert all(map(sums, known))
    assert not any(map(sums, ("mul", "add_", "tanh_backward", "gelu", "addcmul_", "summary", "comma")))


def test_random_ops_keep_their_draws() -> None:
    start = torch.randn(200, generator=torch.Generator().manual_seed(0))
    tape = one_op(lambda: F.dropout(start.exp(), 0.5))
    zeros = tape.expected()["loss 0"] == 0
    assert 50 < int(zeros.sum()) < 150
    assert all(torch.equal(rounded(tape, seed) == 0, zeros) for seed in range(5))


@pytest.mark.parametrize(
    ("compute", "low", "high"),
    [
        (torch.sigmoid, 0, 1),
        (torch.tanh, -1, 1),
        (torch.cos, -1, 1),
        (lambda x: x.sigmoid_(), 0, 1),
        (lambda x: torch.stack((x, x), 1).softmax(0), 0, 1),
        (lambda x: torch._foreach_tanh([x])[0], -1, 1),
        (lambda x: torch.exp(-x.abs()), 0, math.inf),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_stay_in_the_range_of_their_op(
    compute: Callable[[torch.Tensor], torch.Tensor], low: float, high: float, dtype: torch.dtype
) -> None:
    # given values where the op is at its bounds
    start = torch.tensor([0.0, 0.5, 30.0, -30.0, 100.0, -100.0], dtype=dtype).repeat(20)
    with recorded() as recorder:
        recorder.watch("loss 0", compute(start.clone()))
    replay = Replay(recorder.tape())
    # when
    members = [replay.run(RandomRounding(seed, strength))["loss 0"] for seed in range(4) for strength in (1.0, 16.0)]
    # then
    assert all(low <= float(one.min()) and float(one.max()) <= high for one in members)
    assert any(not is_same(one, members[0]) for one in members)


def test_labels_and_saturated_probabilities_can_be_replayed() -> None:
    # given a cross entropy, which refuses what is not between 0 and 1, next to both ends
    scores = torch.tensor([[40.0], [-200.0], [0.5], [1.0]]).requires_grad_()
    smoothed = torch.tensor([[1.0], [0.0], [1.0], [0.5]])
    with recorded() as recorder:
        labels = torch.FloatTensor(4, 1).fill_(1.0)
        loss = F.binary_cross_entropy(scores.sigmoid(), labels)
        loss = loss + F.binary_cross_entropy(1 - scores.sigmoid(), smoothed * 0.9 + 0.1)
        loss.backward()
        recorder.watch("loss 0", loss.detach())
    # when
    noise = measure_noise(recorder.tape(), 8, 8)
    # then
    assert noise.equal and noise.replays == 8 and not noise.dropped
    assert 0 < noise.tensors["loss 0"].rms < noise.tensors["loss 0"].norm


def test_the_error_of_replays_that_all_fail_is_told() -> None:
    start = torch.full((40,), 3.0).sqrt()
    with recorded() as recorder:
        chosen = start.square()[start.square() == start.square()[0]]
        recorder.watch("loss 0", chosen.view(40).sum())
    noise = measure_noise(recorder.tape(), 8)
    assert not noise.equal and noise.dropped == 8
    assert str(noise.reason).startswith("every replay with random rounding fails: an op returned the shape")
    assert noise.to_json()["failure"] == noise.failure and str(noise.failure) in str(noise.reason)


def test_running_statistics_that_are_only_read_stay() -> None:
    norm = torch.nn.BatchNorm1d(3).eval()
    norm.running_mean = torch.tensor([0.1, 0.2, 0.3])
    with recorded() as recorder:
        norm(torch.randn(4, 3)).sum()
        recorder.watch("buffer running_mean", norm.running_mean)
    assert measure_noise(recorder.tape(), 4).tensors["buffer running_mean"].rms == 0


def test_a_discrete_choice_that_rounding_turns_is_dropped_and_counted() -> None:
    # given a selection whose size depends on the last bit, and an op that takes that size only
    start = torch.full((40,), 3.0).sqrt()
    with recorded() as recorder:
        chosen = (start.square() - start.square().mean()).abs()
        selected = chosen[chosen <= chosen.median()]
        recorder.watch("loss 0", selected.view(selected.numel()).sum() + start.exp().sum())
        recorder.watch("loss 1", selected)
    # when
    noise = measure_noise(recorder.tape(), 8)
    # then
    assert noise.dropped + noise.replays == 8 and noise.dropped > 0
    assert "an op returned the shape" in str(noise.failure)


def test_flips_of_integers_are_counted() -> None:
    start = torch.rand(30, generator=torch.Generator().manual_seed(0)) * 1e-7 + 1.0
    tape = one_op(lambda: (start * 1.0).argsort())
    noise = measure_noise(tape, 8).tensors["loss 0"]
    assert noise.flips > 0 and noise.rms == 0 and noise.norm > 0


def test_noise_is_the_root_mean_square_over_the_members() -> None:
    # given
    tape = started("sam").taped(3)
    # when
    noise = measure_noise(tape, 3)
    # then the same from the definition
    members = [Replay(tape).run(RandomRounding(3000 + number)) for number in range(3)]
    for name, value in tape.expected().items():
        squares = [float((member[name].double() - value.double()).square().sum()) for member in members]
        assert noise.tensors[name].rms == pytest.approx(math.sqrt(sum(squares) / 3), rel=1e-12)
        assert noise.tensors[name].norm == pytest.approx(float(value.double().norm()), rel=1e-12)


def test_a_step_without_rounding_is_no_live_replay() -> None:
    # given parameters that nothing of the tape moves
    weight = torch.ones(3)
    with recorded() as recorder:
        recorder.watch("gradient 0 w", torch.ones(3))
        recorder.watch("parameter w", weight)
    noise = measure_noise(recorder.tape(), 2)
    assert not noise.equal and "the tape lacks calls" in str(noise.reason) and noise.unmoved == ["parameter w"]


def test_values_that_differ_in_the_unchanged_replay_are_named() -> None:
    with recorded() as recorder:
        value = torch.zeros(4)
        value.numpy()[0] = 1
        recorder.watch("loss 0", value * 2)
        recorder.watch("loss 1", torch.ones(1))
    tape = recorder.tape()
    noise = measure_noise(tape, 2)
    assert not noise.equal and noise.differs == ["loss 0"] and not noise.tensors
    assert noise.to_json()["reason"] == "the unchanged replay computes different bits for loss 0"
    assert not is_same(Replay(tape).run(AsRecorded())["loss 0"], tape.expected()["loss 0"])


def test_a_step_that_takes_long_is_replayed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    tape = Plain(torch.float32).taped()
    whole = measure_noise(tape, 8, 16)
    assert (whole.replays, whole.edge_replays) == (8, 16)
    monkeypatch.setattr(ensemble, "REPLAY_SECONDS", 0.0)
    monkeypatch.setattr(ensemble, "EDGE_SECONDS", 0.0)
    noise = measure_noise(tape, 8, 16)
    assert (noise.replays, noise.edge_replays) == (ensemble.LEAST_REPLAYS, ensemble.LEAST_REPLAYS)
    first = measure_noise(tape, ensemble.LEAST_REPLAYS)
    assert all(noise.tensors[name].rms == found.rms for name, found in first.tensors.items())


def test_stronger_rounding_finds_a_choice_that_hangs_on_it() -> None:
    # given relu(a * 1 - c), whose input is eight units beside the kink: out of reach of rounding, not of 16 times it
    eps = 2.0**-23
    a = torch.tensor([1.0, 3.0], requires_grad=True)
    one, c = torch.ones(2), torch.tensor([1.0 - 8 * eps, 1.0])

    def training() -> None:
        F.relu(a * one - c).sum().backward()

    with recorded() as recorder:
        training()
        assert a.grad is not None
        recorder.watch("gradient 0 a", a.grad)
    # when
    tape = recorder.tape()
    plain, closer = measure_noise(tape, 8), measure_noise(tape, 8, 16)
    # then
    assert plain.tensors["gradient 0 a"].rms == closer.tensors["gradient 0 a"].rms < 10 * eps
    assert plain.tensors["gradient 0 a"].reach == 0
    assert closer.tensors["gradient 0 a"].reach == pytest.approx(1, rel=1e-5)
    assert (plain.edge_replays, closer.edge_replays) == (0, 16)


def test_stronger_rounding_of_a_smooth_step_moves_it_in_proportion() -> None:
    noise = measure_noise(started("mlp").taped(), 8, 16)
    gradients = [one for name, one in noise.tensors.items() if name.startswith("gradient ") and one.rms]
    assert gradients
    assert all(8 * one.rms < one.reach < 48 * one.rms for one in gradients)


def test_a_large_result_is_rounded_in_every_element_and_nothing_beside_it() -> None:
    # given a result of more elements than there are random numbers, which lies between others in memory
    memory = torch.full((3, POOL + 5), 1 / 3)
    result = memory[1]
    # when
    RandomRounding(1)._perturb(result)
    # then
    eps = torch.finfo(torch.float32).eps
    assert (memory[::2] == torch.tensor(1 / 3)).all()
    assert (result - 1 / 3).abs().max() <= AMPLITUDE / 2 * eps * (1 / 3) + eps / 4
    for part in result[:POOL].split(POOL // 4):
        assert 0.3 < float((part != torch.tensor(1 / 3)).double().mean()) < 1


def test_a_view_that_shares_and_skips_elements_is_rounded_alone() -> None:
    # given four elements of which two have the same memory, so that they span as much as they are
    memory = torch.full((4,), 1 / 3)
    view = memory.as_strided((2, 2), (3, 0))
    copy = RandomRounding(1, strength=1e4)._perturbed(view)
    assert (copy != memory[0]).any() and copy.size() == view.size()
    RandomRounding(1, strength=1e4)._perturb(memory[::3])
    assert (memory[1:3] == torch.tensor(1 / 3)).all() and (memory[::3] != torch.tensor(1 / 3)).all()

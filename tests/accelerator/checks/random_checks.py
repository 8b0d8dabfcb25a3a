"""Random numbers: drawn from the device's own generators, never from the host's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

Draw = Callable[[torch.Tensor], torch.Tensor]


def attend(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)


DRAWS: dict[str, Draw] = {
    "rand": lambda x: torch.rand(50, device=x.device),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn(50, device=x.device),
    "randint": lambda x: torch.randint(1000, (50,), device=x.device),
    "randperm": lambda x: torch.randperm(50, device=x.device),
    "multinomial": lambda x: torch.multinomial(x, 5),
    "bernoulli_": lambda x: x.bernoulli_(),
    "bernoulli": lambda x: torch.bernoulli(x),
    "normal_": lambda x: x.normal_(),
    "uniform_": lambda x: x.uniform_(),
    "exponential_": lambda x: x.exponential_(),
    "random_": lambda x: x.random_(),
    "poisson": lambda x: torch.poisson(10 * x),
    "dropout": lambda x: F.dropout(x),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "alpha_dropout": lambda x: F.alpha_dropout(x, training=True),
    "dropout1d": lambda x: F.dropout1d(x[None, :, None], training=True),
    "rrelu": lambda x: F.rrelu(-x, training=True),
    "gamma": lambda x: torch.distributions.Gamma(x, x).sample(),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: attend(x.view(1, 1, 10, 5)),
}


def drawn(draw: Draw, place: str) -> torch.Tensor:
    return draw((torch.arange(50.0) / 50 + 0.01).to(place)).cpu()


def check_every_draw_is_the_devices_own(standin: Any) -> None:
    for name, draw in DRAWS.items():
        torch.manual_seed(0)
        on_host = drawn(draw, "cpu")
        torch.manual_seed(0)
        state = torch.get_rng_state()
        first, second = drawn(draw, "standin"), drawn(draw, "standin")
        assert torch.equal(torch.get_rng_state(), state), f"{name} draws from the host's generator"
        assert not torch.equal(first, on_host), f"{name} draws what the host draws"
        assert not torch.equal(first, second), f"{name} draws the same again"
        torch.manual_seed(0)
        assert torch.equal(drawn(draw, "standin"), first), f"{name} does not repeat"


def check_the_devices_generators_are_two(standin: Any) -> None:
    torch.manual_seed(0)
    first = torch.rand(5, device="standin:0")
    assert torch.equal(torch.rand(5, device="standin:1").cpu(), first.cpu())
    standin.manual_seed(1)  # of the current device
    assert standin.initial_seed() == 1
    states = standin.get_rng_state_all()
    assert not torch.equal(states[0], states[1])


def check_states_are_kept_and_restored(standin: Any) -> None:
    for place in ("standin", "standin:1", 0):
        device = "standin:0" if place == 0 else place
        state = standin.get_rng_state(place)
        assert state.dtype == torch.uint8
        numbers = torch.randn(5, device=device)  # five normal numbers leave one for later
        following = torch.randn(5, device=device)
        standin.set_rng_state(state, place)
        assert torch.equal(torch.randn(5, device=device), numbers)
        assert torch.equal(torch.randn(5, device=device), following)
    with torch.random.fork_rng(devices=[0, 1], device_type="standin"):
        inner = torch.rand(3, device="standin")
    assert torch.equal(torch.rand(3, device="standin"), inner)


def check_a_generator_is_passed(standin: Any) -> None:
    generator = torch.Generator("standin").manual_seed(3)
    state, default = generator.get_state(), standin.get_rng_state()
    numbers = torch.rand(5, generator=generator, device="standin")
    assert torch.equal(standin.get_rng_state(), default)
    generator.set_state(state)
    assert torch.equal(torch.rand(5, generator=generator, device="standin"), numbers)
    assert torch.equal(torch.rand(5, generator=torch.Generator("standin").manual_seed(3), device="standin"), numbers)
    assert generator.initial_seed() == 3
    with pytest.raises(RuntimeError, match="Expected a 'standin' device type for generator but found 'cpu'"):
        torch.rand(5, generator=torch.Generator(), device="standin")


def check_draws_wait_like_all_kernels(standin: Any) -> None:
    torch.manual_seed(0)
    event = standin.Event()
    numbers = torch.rand(5, device="standin")
    event.record()
    assert not event.query()
    torch.manual_seed(1)  # what waits has drawn
    other = torch.rand(5, device="standin")
    torch.manual_seed(0)
    assert torch.equal(torch.rand(5, device="standin"), numbers)
    assert not torch.equal(numbers, other)

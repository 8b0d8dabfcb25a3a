from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from numdrift.harness.observers.state.script_generators import GeneratorDigests
from numdrift.harness.observers.values.digest import Digester

DRAWS: dict[str, list[Callable[[], Any]]] = {
    "torch": [lambda: torch.rand(1), lambda: torch.randperm(3), lambda: torch.manual_seed(1)],
    "python": [
        random.random,
        lambda: random.gauss(0, 1),
        lambda: random.shuffle([1, 2]),
        lambda: random.seed(1),
    ],
    "numpy": [np.random.rand, np.random.randn, lambda: np.random.permutation(4), lambda: np.random.seed(1)],
}


@pytest.fixture(autouse=True)
def _generators_as_before() -> Iterator[None]:
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_rng_state(kept[0])
    random.setstate(kept[1])
    np.random.set_state(kept[2])


def read() -> dict[str, str]:
    return GeneratorDigests("cpu", Digester()).read()


def test_reading_draws_nothing() -> None:
    digests = GeneratorDigests("cpu", Digester())
    assert digests.read() == digests.read() == read()
    assert set(read()) == {"torch", "python", "numpy"}


@pytest.mark.parametrize(("name", "draw"), [(name, draw) for name, draws in DRAWS.items() for draw in draws])
def test_a_draw_changes_the_digest_of_its_generator_alone(name: str, draw: Callable[[], Any]) -> None:
    digests = GeneratorDigests("cpu", Digester())
    before = digests.read()
    draw()
    after = digests.read()
    assert {one for one in before if before[one] != after[one]} == {name}


def test_the_second_number_of_a_pair_of_pythons_counts() -> None:
    random.seed(0)
    random.gauss(0, 1)
    kept = read()["python"]
    random.gauss(0, 1)  # takes the one that was left over: the words of the state stay
    assert read()["python"] != kept


def test_equal_states_have_equal_digests_in_another_process() -> None:
    # given
    script = (
        "import random, torch, numpy\n"
        "from numdrift.harness.observers.values.digest import Digester\n"
        "from numdrift.harness.observers.state.script_generators import GeneratorDigests\n"
        "torch.manual_seed(5), random.seed(6), numpy.random.seed(7)\n"
        "print(GeneratorDigests('cpu', Digester()).read())"
    )
    torch.manual_seed(5), random.seed(6), np.random.seed(7)
    # when
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # then
    assert done.stdout.strip() == str(read())


def test_another_generator_of_numpys_is_followed() -> None:
    numpy: Any = np.random
    if not hasattr(numpy, "set_bit_generator"):
        pytest.skip("this NumPy cannot exchange its generator")
    before = numpy.get_bit_generator()
    digests = GeneratorDigests("cpu", Digester())
    try:
        found = [digests.read()["numpy"]]
        for other in (np.random.MT19937(3), np.random.PCG64(3)):
            numpy.set_bit_generator(other)
            found.append(digests.read()["numpy"])
            np.random.rand()
            found.append(digests.read()["numpy"])
    finally:
        numpy.set_bit_generator(before)
    assert len(set(found)) == 5

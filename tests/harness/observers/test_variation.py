from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.recorder.trainings import run

from numdrift.harness.observers.state.variation import perturb_

WIDTHS = {torch.float64: "int64", torch.float32: "int32", torch.bfloat16: "int16", torch.float16: "int16"}
BITS = {
    torch.float64: st.integers(0, 2**64 - 1),
    torch.float32: st.integers(0, 2**32 - 1),
    torch.bfloat16: st.integers(0, 2**16 - 1),
    torch.float16: st.integers(0, 2**16 - 1),
}


def of_bits(bits: list[int], dtype: torch.dtype) -> torch.Tensor:
    width = dtype.itemsize * 8
    signed = [one - (1 << width) if one >> (width - 1) else one for one in bits]
    return torch.tensor(signed, dtype=getattr(torch, WIDTHS[dtype])).view(dtype)


def neighbours(value: float, dtype: torch.dtype) -> list[float]:
    """The next numbers of a format on both sides, by its definition."""
    digits, lowest = {
        torch.float64: (53, -1074),
        torch.float32: (24, -149),
        torch.bfloat16: (8, -133),
        torch.float16: (11, -24),
    }[dtype]
    if dtype == torch.float64:
        return [math.nextafter(value, -math.inf), math.nextafter(value, math.inf)]
    exponent = max(math.frexp(value)[1] - digits, lowest)
    towards_zero = exponent
    if abs(math.frexp(value)[0]) == 0.5:  # below a power of two the numbers lie twice as close
        towards_zero = max(exponent - 1, lowest)
    sign = math.copysign(1.0, value)
    return [value + sign * 2.0**exponent, value - sign * 2.0**towards_zero]


@pytest.mark.parametrize("dtype", list(BITS))
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_an_element_moves_to_a_neighbour_or_stays(dtype: torch.dtype, data: st.DataObject, seed: int) -> None:
    # given any bits at all
    bits = data.draw(st.lists(BITS[dtype], min_size=1, max_size=30))
    tensor = of_bits(bits, dtype)
    before, kept = tensor.tolist(), tensor.clone()
    # when
    perturb_([tensor], seed)
    # then
    for place, (old, new) in enumerate(zip(before, tensor.tolist(), strict=True)):
        if math.isfinite(old) and old:
            assert new in neighbours(old, dtype) and math.isfinite(new)
        else:
            assert torch.equal(*(one[place : place + 1].view(torch.int8) for one in (tensor, kept)))


def test_both_directions_occur_and_follow_from_the_seed() -> None:
    # given
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    again, other, before = tensor.clone(), tensor.clone(), tensor.clone()
    # when
    perturb_([tensor], 3)
    perturb_([again], 3)
    perturb_([other], 4)
    # then
    assert torch.equal(tensor, again) and not torch.equal(tensor, other)
    assert 400 < int((tensor > before).sum()) < 600 and bool((tensor != before).all())


def test_the_scripts_generator_stays_and_autograd_sees_nothing() -> None:
    # given
    state = torch.get_rng_state()
    weight = torch.nn.Parameter(torch.ones(2, 3).t())
    # when
    perturb_([weight, torch.arange(3), torch.empty(0)], 0)
    # then
    assert torch.equal(torch.get_rng_state(), state)
    assert weight.grad_fn is None and not bool((weight == 1).any())


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits_have_neighbours_too(dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)
    moved = every.clone()
    perturb_([moved], 0)
    wide, now = every.float(), moved.float()
    still = ~wide.isfinite() | (wide == 0)
    assert bool(now[~still].isfinite().all()) and bool((now != wide)[~still].all())
    assert torch.equal(moved.view(torch.uint8)[still], every.view(torch.uint8)[still])


def test_complex_numbers_move_in_both_parts() -> None:
    tensor = torch.full((50,), 1 + 1j)
    perturb_([tensor], 0)
    assert bool((tensor.real != 1).all()) and bool((tensor.imag != 1).all())


SEEDING = """
import random, sys
if {shift}:
    if {late}:
        sys.modules["numpy"] = None  # torch would load it
    import torch
    if {late}:
        del sys.modules["numpy"]
        assert not [name for name in sys.modules if name.startswith("numpy.")]
    from numdrift.harness.observers.state.variation import shift_seeds
    shift_seeds({shift})
import torch
import numpy as np
offset = {added}
torch.manual_seed(3 + offset), random.seed(4 + offset), np.random.seed(5 + offset)
print(torch.rand(2).tolist(), random.random(), np.random.rand(2).tolist())
print(torch.rand(2, generator=torch.Generator().manual_seed(2**64 - 6 + offset)).tolist())
print(np.random.default_rng(6 + offset).random(2).tolist(), np.random.default_rng(seed=6 + offset).random())
torch.random.manual_seed(seed=np.int64(7 + offset)), random.seed(a=8 + offset)
print(torch.initial_seed(), random.random(), isinstance(torch.default_generator, torch.Generator))
random.seed("text"), np.random.seed([1, 2]), torch.manual_seed(-1 + offset)
print(random.random(), np.random.rand(), torch.rand(1).item())
for wrong in (-1, 2**32):
    try:
        np.random.seed(wrong)
    except ValueError as error:
        print(error)
from random import seed
from numpy.random import seed as numpy_seed
seed(1 + offset), numpy_seed(1 + offset)
print(random.random(), np.random.rand())
"""


def printed(**values: Any) -> str:
    script = SEEDING.format(**{"shift": 0, "late": False, "added": 0, **values})
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_shifted_seeds_are_those_of_a_script_that_adds_the_offset_itself(late: bool) -> None:
    # given
    wanted = printed(added=5)
    assert wanted != printed()
    # when
    found = printed(shift=5, late=late)
    # then
    assert found == wanted


def test_a_seed_beyond_the_last_begins_anew() -> None:
    shifted = "from numdrift.harness.observers.state.variation import shift_seeds; shift_seeds(5);"
    script = f"import torch, numpy as np;{shifted} torch.manual_seed(2**64 - 2); np.random.seed(2**32 - 1);"
    script += "print(torch.initial_seed(), np.random.rand().hex())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", np.random.RandomState(4).rand().hex()]


UNSEEDED = """
import random, torch, numpy as np
print(torch.rand(1).item(), random.random(), np.random.rand())
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 3)).mean().backward()
optimizer.step()
print(*(one.item().hex() for one in model.weight[0]))
"""


@pytest.mark.slow
def test_a_run_with_a_shift_seeds_what_the_script_leaves_unseeded(tmp_path: Path) -> None:
    # given
    script = tmp_path / "train.py"
    script.write_text(UNSEEDED)
    # when
    plain = run(script, tmp_path / "plain", "cpu")
    shifted, again = (run(script, tmp_path / name, "cpu", seed_shift=7) for name in ("shifted", "again"))
    moved = run(script, tmp_path / "moved", "cpu", perturb=0)
    # then
    drawn, other = plain.printed.split()[:3], shifted.printed.split()[:3]
    assert shifted.printed == again.printed and all(a != b for a, b in zip(drawn, other, strict=True))
    assert float(other[1]) == random.Random(7).random() and float(other[2]) == np.random.RandomState(7).rand()
    # and the perturbed run draws the same and starts from different values of the same size
    assert moved.printed.split()[:3] == drawn
    ours, theirs = plain.journal.initial(), moved.journal.initial()
    assert all(ours[name].digest.hash != theirs[name].digest.hash for name in ours)
    assert ours["weight"].digest.l2 == pytest.approx(theirs["weight"].digest.l2, rel=1e-6)
    assert moved.printed.split()[3:] != plain.printed.split()[3:]

"""Scripts of culprits, shrunk to the smallest inputs that show the difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import UsageError
from numdrift.harness.localize.scripts.shrunk_script import (
    SideDifference,
    _shortest,
    difference_of,
    main,
    shrunk,
    written,
)

SCRIPT = '''"""aten.exp in the forward (train.py:3): a against b without numdrift.
More words."""
import torch

def side_a(x, other, **_):
    t1 = torch.ops.aten.exp.default(x)
    return [t1 + other]

def side_b(x, other, **_):
    t1 = torch.ops.aten.exp.default(x)
    return [torch.where(x > 2, t1 * 1.5, t1) + other]

def load(path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 6, generator=generator)
    x[5, 2] = 2.718281828
    return {"x": x, "other": torch.randn(6, generator=generator)}

values = load(__file__.removesuffix("py") + "safetensors")
wide = {name: value.double() if value.is_floating_point() else value for name, value in values.items()}
for name, side, expected in (('a', side_a, 0.0), ('b', side_b, 3.0)):
    pass
'''


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "culprit-1.py"
    path.write_text(SCRIPT)
    return path


def test_one_element_is_left(script: Path) -> None:
    difference, values, _ = difference_of(SCRIPT, script)
    smaller = shrunk(difference, values)
    assert [tuple(value.shape) for value in smaller.values()] == [(1, 1), (1,)]
    assert smaller["x"].item() == 3  # rounded, and still more than 2
    assert smaller["other"].item() == 0


def test_the_script_needs_no_other_file_and_shows_the_difference(script: Path, tmp_path: Path) -> None:
    target = tmp_path / "shrunk-1.py"
    assert main([str(script), str(target)]) == 0
    text = target.read_text()
    assert "x = torch.tensor([3], dtype=torch.float32).reshape((1, 1))" in text
    assert "load(" not in text
    done = subprocess.run([sys.executable, target], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "AssertionError: the sides differ" in done.stderr


def test_elements_that_matter_together_stay() -> None:
    values = {"x": torch.tensor([5.0, 1.25, 5.0, 5.0, 2.5, 5.0])}
    sides = (lambda x: [x.sum().reshape(1)], lambda x: [(x.sum() + x[1] * x[4]).reshape(1)])
    smaller = shrunk(SideDifference(("a", "b"), sides), values)
    assert smaller["x"].tolist() == [0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("torch.where(x > 2, t1 * 1.5, t1)", "t1"), "does not show its difference"),
        (('"x": x', '"given_x": x, "x": x'), "recorded results of a kernel"),
        (("for name, side, expected in", "for name, side in"), "no script of a culprit"),
    ],
)
def test_what_cannot_be_shrunk(script: Path, change: tuple[str, str], part: str) -> None:
    text = SCRIPT.replace(*change)
    with pytest.raises(UsageError, match=part):
        shrunk(*difference_of(text, script)[:2])


def test_large_values_are_not_listed() -> None:
    with pytest.raises(UsageError, match="still has 100 elements"):
        written({"x": torch.randn(100)})


@given(st.floats(width=32), st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
def test_a_number_is_written_exactly(number: float, dtype: torch.dtype) -> None:
    value = torch.tensor(number, dtype=dtype)
    again = torch.tensor(eval(_shortest(value.item(), dtype)), dtype=dtype)
    assert torch.equal(value, again) or (value.isnan() and again.isnan())

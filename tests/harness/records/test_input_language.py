"""The language of `--inputs`."""

from __future__ import annotations

import math

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.records.run.input_language import DescribedInput, described_inputs


def test_tensors_values_and_names() -> None:
    x, labels, dim, weight = described_inputs("randn(4, 8), randint(0, 10, (4,)), -1, weight=rand(8, dtype=bfloat16)")
    assert x == DescribedInput(function="randn", shape=(4, 8))
    assert labels == DescribedInput(function="randint", numbers=(0, 10), shape=(4,))
    assert dim == DescribedInput(value=-1)
    assert weight == DescribedInput("weight", "rand", shape=(8,), dtype="bfloat16")


def test_functions_are_written_as_in_torch() -> None:
    assert described_inputs("torch.randint(10, (2, 3))")[0] == DescribedInput(
        function="randint", numbers=(0, 10), shape=(2, 3)
    )
    assert described_inputs("full((2, 3), 1.5)")[0] == DescribedInput(function="full", numbers=(1.5,), shape=(2, 3))
    assert described_inputs("arange(1, 9, 2)")[0] == DescribedInput(function="arange", numbers=(1, 9, 2))
    assert described_inputs("uniform(-1, 1, [5])")[0] == DescribedInput(function="uniform", numbers=(-1, 1), shape=(5,))


def test_plain_values() -> None:
    values = [described.value for described in described_inputs("2, 0.5, 'mean', None, True, (1, 2), -inf, float32")]
    assert values == [2, 0.5, "mean", None, True, (1, 2), -math.inf, "float32"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "describes no input"),
        ("randn(4", "cannot be read"),
        ("randn(4)); import os; (1", "cannot be read"),
        ("randm(4)", "did you mean 'rand'"),
        ("randn(4, dtype=float31)", "did you mean 'float32'"),
        ("randn(4, layout='diagonal')", "transposed, expanded, sliced"),
        ("randn(-4)", "no shape of whole numbers"),
        ("randn(4.5)", "no shape of whole numbers"),
        ("randint(10)", "lacks its numbers"),
        ("open('/etc/passwd')", "there is no function 'open'"),
        ("x.y", "no tensor or plain value"),
        ("randn(4, device='cuda')", "an argument 'device'"),
    ],
)
def test_a_wrong_part_is_quoted(text: str, part: str) -> None:
    with pytest.raises(UsageError, match="--inputs") as raised:
        described_inputs(text)
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)

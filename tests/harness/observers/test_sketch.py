from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.observers.values.sketch import Sketcher
from numdrift.harness.records.values.sketch_record import (
    GOLDEN,
    NUMBERS,
    ROUNDING,
    SEED,
    SKETCH_BYTES,
    Sketch,
    added,
    norm_estimate,
    pack_sketch,
    unpack_sketches,
)

MASK = 2**64 - 1
SKETCHERS = {"native": Sketcher(), "torch": Sketcher(native=False)}
IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["native", "torch"])


def signs(index: int) -> list[int]:
    """The definition of the module, in whole numbers."""
    x = (SEED + (index + 1) * GOLDEN) & MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        x = (x ^ (x >> shift)) * factor & MASK
    return [1 - 2 * (x >> number & 1) for number in range(NUMBERS)]


def reference(values: Sequence[float]) -> Sketch:
    """The exactly rounded sketch of a flat tensor."""
    finite = [value if math.isfinite(value) else 0.0 for value in values]
    rows = [signs(index) for index in range(len(finite))]
    return tuple(
        math.fsum(row[number] * value for row, value in zip(rows, finite, strict=True)) for number in range(NUMBERS)
    )


def bound(values: torch.Tensor) -> float:
    wide = values.double().reshape(-1)
    return ROUNDING * float(wide[wide.isfinite()].abs().sum())


def assert_close(found: Sketch | None, expected: Sketch, within: float) -> None:
    assert found is not None
    assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) <= within


def test_the_native_sketch_is_there() -> None:
    assert SKETCHERS["native"].reason is None


@IMPLEMENTATIONS
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32", "bool"])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 511, 512, 513, 1500])
def test_a_sketch_is_what_its_definition_says(implementation: str, dtype: str, count: int) -> None:
    torch.manual_seed(count)
    values = (torch.randn(count) * 3).to(getattr(torch, dtype))
    found = SKETCHERS[implementation].sketch(values)
    assert_close(found, reference(values.double().tolist()), bound(values))


@IMPLEMENTATIONS
def test_what_is_not_finite_counts_as_zero(implementation: str) -> None:
    values = torch.tensor([1.0, math.nan, -2.0, math.inf, -math.inf, 4.0])
    assert_close(SKETCHERS[implementation].sketch(values), reference([1.0, 0.0, -2.0, 0.0, 0.0, 4.0]), 0.0)


@IMPLEMENTATIONS
def test_strides_and_complex_parts_do_not_matter(implementation: str) -> None:
    sketcher = SKETCHERS[implementation]
    values = torch.arange(24.0).reshape(4, 6)
    assert sketcher.sketch(values.t().contiguous().t()) == sketcher.sketch(values)
    paired = torch.complex(values[:, :3].contiguous(), values[:, 3:].contiguous())
    assert sketcher.sketch(paired) == sketcher.sketch(torch.view_as_real(paired).contiguous())
    # a block of a complex tensor
    assert sketcher.sketch(paired[1:3], (4, 3), (1, 0)) == sketcher.sketch(
        torch.view_as_real(paired)[1:3].contiguous(), (4, 3, 2), (1, 0, 0)
    )


@st.composite
def cut_tensors(draw: st.DrawFn) -> tuple[torch.Tensor, list[list[int]]]:
    """A tensor, and along each dimension where it is cut."""
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    seed, scale = draw(st.integers(0, 2**16)), draw(st.sampled_from([1.0, 1e-20, 1e20]))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    values = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)
    cuts = [sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape]
    return values, cuts


@IMPLEMENTATIONS
@given(cut=cut_tensors())
@settings(max_examples=60)
def test_the_parts_of_a_tensor_add_up_to_it(implementation: str, cut: tuple[torch.Tensor, list[list[int]]]) -> None:
    values, cuts = cut
    sketcher = SKETCHERS[implementation]
    parts = []
    for ends in itertools.product(*(list(itertools.pairwise(along)) for along in cuts)):
        block = values[tuple(slice(first, last) for first, last in ends)]
        parts.append(sketcher.sketch(block, tuple(values.shape), [first for first, _ in ends]))
    assert None not in parts
    together = added([part for part in parts if part is not None])
    assert_close(sketcher.sketch(values), together, 2 * bound(values))


@given(cut=cut_tensors(), other=st.integers(0, 2**16))
@settings(max_examples=30)
def test_the_sketch_of_a_difference_is_the_difference_of_the_sketches(
    cut: tuple[torch.Tensor, list[list[int]]], other: int
) -> None:
    a = cut[0].double()
    b = torch.randn(a.shape, generator=torch.Generator().manual_seed(other), dtype=torch.float64)
    sketcher = SKETCHERS["native"]
    left, right, apart = sketcher.sketch(a), sketcher.sketch(b), sketcher.sketch(a - b)
    assert left is not None and right is not None
    difference = tuple(x - y for x, y in zip(left, right, strict=True))
    # a - b is rounded once an element, besides
    assert_close(apart, difference, bound(a) + bound(b) + bound(a - b) + 2.0**-53 * float((a - b).abs().sum()))


def test_the_norm_is_estimated_as_well_as_stated() -> None:
    # given many differences of known norm, of many sizes
    sketcher, ratios = SKETCHERS["native"], []
    generator = torch.Generator().manual_seed(0)
    for trial in range(400):
        values = torch.randn(100 + 7 * trial, generator=generator)
        sketch = sketcher.sketch(values)
        assert sketch is not None
        ratios.append(norm_estimate(sketch) / float(values.double().norm()))
    # then the mean square is right, its standard error at most a half, and 95 % lie within the stated interval
    squares = torch.tensor(ratios).double() ** 2
    assert abs(float(squares.mean()) - 1.0) < 3 * 0.5 / math.sqrt(len(ratios))
    assert float(squares.std()) < 0.6
    inside = sum(0.52 <= ratio <= 1.48 for ratio in ratios) / len(ratios)
    assert 0.92 <= inside <= 0.98


def test_a_single_element_is_seen_exactly() -> None:
    values = torch.zeros(1000)
    values[617] = -2.5
    sketch = SKETCHERS["native"].sketch(values)
    assert sketch is not None
    assert norm_estimate(sketch) == 2.5
    assert list(sketch) == [-2.5 * sign for sign in signs(617)]


def test_a_block_outside_of_the_whole_is_refused() -> None:
    with pytest.raises(ValueError, match="is not inside a tensor"):
        SKETCHERS["native"].sketch(torch.zeros(3), (4,), (2,))


def test_records_are_read_as_they_were_written() -> None:
    sketch = tuple(float(number) for number in range(NUMBERS))
    records = pack_sketch(sketch) + pack_sketch([math.nan] * NUMBERS)
    assert len(records) == 2 * SKETCH_BYTES
    assert list(unpack_sketches(records)) == [sketch, None]

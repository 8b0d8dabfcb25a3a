from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import UsageError
from numdrift.kernels.lab.sweep_domain import ENCODINGS, Domain

SHORT = ["bfloat16", "float16"]
numbers = st.floats(allow_nan=False, width=32)


def all_values(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Every number of a 16-bit dtype, as torch reads the bits, by its pattern."""
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    wide: np.ndarray[tuple[int], np.dtype[np.float64]] = bits.view(getattr(torch, name)).double().numpy()
    return wide


def patterns_of(domain: Domain) -> list[int]:
    """What the blocks, pieces and runs of a domain amount to, in their order."""
    return [
        pattern
        for block in domain.blocks()
        for _, runs in domain.pieces(block)
        for run in runs
        for pattern in range(run.first, run.last + 1)
    ]


@pytest.mark.parametrize("name", SHORT)
def test_an_encoding_reads_bits_as_torch_does(name: str) -> None:
    encoding, expected = ENCODINGS[name], all_values(name)
    assert np.array_equal(encoding.values(np.arange(1 << 16)), expected, equal_nan=True)
    assert np.array_equal(encoding.tensor(4096, 512).double().numpy(), expected[4096:4608], equal_nan=True)


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_encoding_knows_its_limits(name: str) -> None:
    encoding, about = ENCODINGS[name], torch.finfo(getattr(torch, name))
    assert encoding.largest == about.max
    assert encoding.value(encoding.infinity) == math.inf
    assert encoding.value(1) == about.smallest_normal * about.eps
    # the smallest number that rounds to infinity, and its neighbour in float64 that does not
    above, below = encoding.overflow, math.nextafter(encoding.overflow, 0)
    if name == "float32":
        with np.errstate(over="ignore"):
            assert np.isinf(np.float32(above)) and np.isfinite(np.float32(below))
    else:
        assert above - encoding.largest == 2.0 ** (1 - encoding.least - encoding.precision)


@pytest.mark.parametrize("name", SHORT)
def test_a_whole_domain_has_every_pattern_once(name: str) -> None:
    domain = Domain.whole(ENCODINGS[name])
    assert patterns_of(domain) == list(range(1 << 16))
    assert domain.count == 1 << 16


def test_a_whole_float32_domain_is_made_of_whole_bins() -> None:
    domain = Domain.whole(ENCODINGS["float32"])
    assert (domain.count, len(domain.blocks())) == (1 << 32, 1 << 12)
    pieces = list(domain.pieces(5))
    assert [first for first, _ in pieces] == list(range(5 << 20, 6 << 20, 1 << 16))
    assert {run.bin for _, runs in pieces for run in runs} == {5}


@pytest.mark.parametrize("name", SHORT)
@given(bounds=st.tuples(numbers, numbers))
def test_a_range_holds_exactly_the_numbers_in_it(name: str, bounds: tuple[float, float]) -> None:
    low, high = sorted(bounds)
    values = all_values(name)
    expected = np.flatnonzero((values >= low) & (values <= high)).tolist()
    if not expected:
        with pytest.raises(UsageError, match="contains no"):
            Domain.between(ENCODINGS[name], low, high)
        return
    domain = Domain.between(ENCODINGS[name], low, high)
    assert patterns_of(domain) == expected
    assert domain.count == len(expected) == sum(map(domain.inputs_of, domain.blocks()))


@given(bounds=st.tuples(numbers, numbers))
def test_a_float32_range_ends_at_its_bounds(bounds: tuple[float, float]) -> None:
    low, high = sorted(bounds)
    domain = Domain.between(ENCODINGS["float32"], low, high)
    ends = [pattern for interval in domain.intervals for pattern in interval]
    values = domain.encoding.values(np.array(ends))
    assert (values.min(), values.max()) == (low, high)


def test_zero_is_in_a_range_with_both_signs() -> None:
    domain = Domain.between(ENCODINGS["bfloat16"], 0, 0)
    assert patterns_of(domain) == [0, 0x8000]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1", "LOW:HIGH"),
        ("a:b", "LOW:HIGH"),
        ("1:2:3", "LOW:HIGH"),
        ("2:1", "write 1:2"),
        ("nan:1", "contains no float16"),
        ("1e300:1e301", "contains no float16"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Domain.parse(ENCODINGS["float16"], text)

"""The digest of a tensor, native and by torch, against plain Python integers and exactly rounded sums."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numdrift.harness.observers.values.digest import Digester
from numdrift.harness.records.values.digest_record import (
    ABSENT,
    RECORD_BYTES,
    Digest,
    iter_unpack,
    pack,
    unpack,
    unreadable,
)

M32, M64 = 2**32 - 1, 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
NATIVE = Digester()
TORCH = Digester(native=False)
BOTH = pytest.mark.parametrize("digester", [NATIVE, TORCH], ids=["native", "torch"])

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
]
OTHERS = [torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn]
DTYPES = st.sampled_from(FLOATS + INTEGERS + OTHERS)
SIZES = st.integers(0, 5000) | st.sampled_from([0, 1, 15, 16, 17, 1023, 1024, 1025, 2048, 2049, 4096, 4097])
EDGES = [0, 1, 15, 16, 17, 1023, 1024, 1025, 65535, 65536, 65537, 66560, 66561, 262144, 330000, 600001]
"""Numbers of float32 elements around a stripe, a block, a row of 64 blocks, and a slice."""


def digest_of(digester: Digester, *tensors: torch.Tensor) -> list[Digest]:
    return list(iter_unpack(digester.digest(tensors)))


def random_bits(size: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (size,), generator=generator).to(dtype)
    data = torch.randint(0, 256, (size * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return data.view(dtype)


def bytes_of(tensor: torch.Tensor) -> bytes:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return bytes(real.contiguous().reshape(-1).view(torch.uint8).tolist())


def mix64(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & M64
    return x ^ (x >> 31)


KEYS = [mix64(int.from_bytes(b"numdrift", "big") + (i + 1) * GOLDEN & M64) & M32 for i in range(1024)]


def reference_hash(data: bytes) -> int:
    padded = data + bytes(-len(data) % 64)
    lanes: dict[int, tuple[int, int]] = {
        8 * block + lane: (0, 0) for block in range(-(-len(data) // 4096)) for lane in range(8)
    }
    for pair, (a, b) in enumerate(struct.iter_unpack("<II", padded)):
        lane = pair // 512 * 8 + pair % 8
        low, high = (a + KEYS[pair % 512 * 2]) & M32, (b + KEYS[pair % 512 * 2 + 1]) & M32
        products, sums = lanes[lane]
        lanes[lane] = products + low * high, sums + low + (high << 32)
    total = sum(mix64((p + mix64((s + lane * GOLDEN) & M64)) & M64) for lane, (p, s) in lanes.items())
    return mix64((total + len(data) * 0xD6E8FEB86659FD93) & M64) or 1


def reference_statistics(values: list[float]) -> tuple[int, int, float, float, float, float]:
    finite = [value for value in values if math.isfinite(value)]
    nan, inf = sum(map(math.isnan, values)), sum(map(math.isinf, values))
    if not finite:
        return nan, inf, math.nan, math.nan, math.nan, 0.0
    l2 = math.sqrt(math.fsum(value * value for value in finite))
    return nan, inf, min(finite), max(finite), math.fsum(finite) / len(finite), l2


def assert_statistics(digest: Digest, values: list[float]) -> None:
    nan, inf, low, high, mean, l2 = reference_statistics(values)
    scale = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    assert (digest.nan, digest.inf) == (nan, inf)
    assert (digest.minimum, digest.maximum) == pytest.approx((low, high), rel=0, abs=0, nan_ok=True)
    assert digest.mean == pytest.approx(mean, rel=0, abs=1e-13 * scale, nan_ok=True)
    assert digest.l2 == pytest.approx(l2, rel=1e-13, abs=0)


def test_the_native_implementation_is_what_these_tests_run() -> None:
    assert NATIVE.implementation == "native", NATIVE.reason
    assert (TORCH.implementation, TORCH.reason) == ("torch", "native code not requested")


def test_a_record_survives_packing() -> None:
    digest = Digest(2**64 - 1, 5, 1, 2, -1.5, 2.5, 0.25, 3.0)
    assert len(pack(digest)) == RECORD_BYTES == 64
    assert unpack(pack(digest)) == digest
    assert list(iter_unpack(pack(digest) * 3)) == [digest] * 3
    assert unpack(ABSENT).absent and not unpack(ABSENT).readable and not unpack(pack(unreadable(3))).absent


def test_keys_of_the_hash_are_distinct() -> None:
    assert len(set(KEYS)) == len(KEYS)


@settings(max_examples=60, deadline=None)
@given(SIZES, DTYPES, st.integers(0, 2**32))
def test_hash_is_the_documented_one(size: int, dtype: torch.dtype, seed: int) -> None:
    tensor = random_bits(size, dtype, seed)
    expected = reference_hash(bytes_of(tensor))
    for digester in (NATIVE, TORCH):
        (digest,) = digest_of(digester, tensor)
        assert (digest.hash, digest.numel) == (expected, size)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.sampled_from(FLOATS + INTEGERS), st.integers(0, 2**32), st.booleans())
def test_statistics_of_any_bits(size: int, dtype: torch.dtype, seed: int, finite: bool) -> None:
    tensor = random_bits(size, dtype, seed)
    if dtype == torch.float64 or (finite and dtype.is_floating_point):
        tensor = torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)
    for digester in (NATIVE, TORCH):
        assert_statistics(digest_of(digester, tensor)[0], tensor.double().tolist())


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_16_bit_float_is_read_exactly(digester: Digester, dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    some = every[:: 101 if digester is TORCH else 7]
    for digest, value in zip(digest_of(digester, *some), some.double().tolist(), strict=True):
        (low, high) = (digest.minimum, digest.maximum)
        assert (low == high == value) if math.isfinite(value) else digest.nan + digest.inf == 1
    assert_statistics(digest_of(digester, every)[0], every.double().tolist())


@BOTH
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [3, 9000])
def test_nonfinite_zeros_and_subnormals(digester: Digester, dtype: torch.dtype, size: int) -> None:
    special = [math.nan, math.inf, -math.inf, -0.0, 0.0, torch.finfo(dtype).smallest_normal / 2]
    tensor = torch.zeros(size, dtype=dtype)
    for start, value in enumerate(special):
        tensor[start::97] = value
        assert_statistics(digest_of(digester, tensor)[0], tensor.double().tolist())


@BOTH
def test_only_nonfinite_elements(digester: Digester) -> None:
    (digest,) = digest_of(digester, torch.tensor([math.nan, math.inf] * 2000))
    assert (digest.nan, digest.inf, digest.l2) == (2000, 2000, 0.0)
    assert math.isnan(digest.minimum) and math.isnan(digest.maximum) and math.isnan(digest.mean)


@BOTH
def test_squares_that_overflow_leave_the_rest_exact(digester: Digester) -> None:
    (digest,) = digest_of(digester, torch.tensor([1e200, -1e200, 1.0], dtype=torch.float64))
    assert (digest.inf, digest.minimum, digest.maximum, digest.l2) == (0, -1e200, 1e200, math.inf)


@BOTH
def test_nothing_in_nothing(digester: Digester) -> None:
    (digest,) = digest_of(digester, torch.empty(0))
    assert digest.readable and (digest.numel, digest.l2) == (0, 0.0) and math.isnan(digest.mean)
    assert digester.digest([]) == b""


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), DTYPES, st.integers(0, 2**32), st.data())
def test_one_changed_bit_changes_the_hash(size: int, dtype: torch.dtype, seed: int, data: Any) -> None:
    tensor = random_bits(size, dtype, seed)
    changed = tensor.clone()
    raw = (torch.view_as_real(changed) if changed.is_complex() else changed).view(torch.uint8).reshape(-1)
    at = data.draw(st.integers(0, raw.numel() - 1))
    raw[at] ^= 1 if dtype == torch.bool else 1 << data.draw(st.integers(0, 7))
    before, after = digest_of(NATIVE, tensor, changed)
    assert before.hash != after.hash


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 3000), st.integers(0, 2**32), st.booleans(), st.data())
def test_two_exchanged_elements_change_the_hash(size: int, seed: int, sparse: bool, data: Any) -> None:
    tensor = random_bits(size, torch.int32, seed) * (0 if sparse else 1)
    first, second = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    tensor[first] = tensor[second] + 1
    exchanged = tensor.clone()
    exchanged[[first, second]] = tensor[[second, first]]
    before, after = digest_of(NATIVE, tensor, exchanged)
    assert before.hash != after.hash


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_many_tensors_in_one_call_have_the_digests_of_each(dtype: torch.dtype) -> None:
    bits = [random_bits(size * 4 // dtype.itemsize, dtype, size) for size in EDGES]
    if dtype.is_floating_point and dtype.itemsize > 1:
        bits = [tensor.nan_to_num() / 2**11 if size % 2 else tensor for size, tensor in zip(EDGES, bits, strict=True)]
    tensors = [*bits, *bits[3::2], torch.ones(3, dtype=torch.int32), bits[-1][1:], bits[-1][::3], bits[-1][5]]
    for tensor, digest in zip(tensors, digest_of(TORCH, *tensors), strict=True):
        (expected,) = digest_of(NATIVE, tensor)
        assert (digest.hash, digest.numel) == (expected.hash, expected.numel)
        assert (digest.nan, digest.inf) == (expected.nan, expected.inf)
        exact = (digest.minimum, digest.maximum), (expected.minimum, expected.maximum)
        assert exact[0] == pytest.approx(exact[1], rel=0, abs=0, nan_ok=True)
        if math.isfinite(expected.l2):  # otherwise, the sum may overflow in one order only
            scale = max(abs(expected.minimum), abs(expected.maximum))
            assert digest.l2 == pytest.approx(expected.l2, rel=1e-12, abs=0)
            assert digest.mean == pytest.approx(expected.mean, rel=0, abs=1e-12 * scale, nan_ok=True)


def test_the_digests_of_old_journals_stay_comparable() -> None:
    tensors = [
        torch.arange(300000.0),
        torch.arange(70001).to(torch.bfloat16),
        torch.arange(5000.0, dtype=torch.float64).view(50, 100).t(),
        torch.tensor(True),
        torch.empty(0),
    ]
    recorded = [0x739E361650D016A1, 0x2F90FD2A9D81D550, 0x96D63B99E94781E8, 0xE53717EF58D19D07, 1]
    for digester in (NATIVE, TORCH):
        assert [digest.hash for digest in digest_of(digester, *tensors)] == recorded


def test_a_block_of_zeros_counts_by_its_length_and_place() -> None:
    zeros = [torch.zeros(size) for size in range(3000)]
    ones = [torch.zeros(4096).index_fill(0, torch.tensor(list(range(i, i + 16))), 1.0) for i in range(4080)]
    for family in (zeros, ones):
        assert len({digest.hash for digest in digest_of(NATIVE, *family)}) == len(family)


@BOTH
def test_bits_matter_and_strides_do_not(digester: Digester) -> None:
    zero, negative, nan = torch.tensor([0.0, -0.0, math.nan]).unbind()
    payload = torch.tensor(0x7FC00001, dtype=torch.int32).view(torch.float32)
    assert len({digest.hash for digest in digest_of(digester, zero, negative, nan, payload)}) == 4
    matrix = torch.randn(70, 90)
    strided, conjugate = torch.stack([matrix, matrix], -1)[..., 0], torch.complex(matrix, matrix).conj()
    assert digester.digest([strided, matrix.t(), conjugate, conjugate.imag]) == digester.digest(
        [matrix, matrix.t().contiguous(), conjugate.resolve_conj(), -matrix]
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 13), max_size=5), DTYPES, st.data())
def test_a_view_has_the_digest_of_its_copy(shape: list[int], dtype: torch.dtype, data: Any) -> None:
    # given a view with transposed dimensions, steps, an offset, and dimensions that repeat elements or have one element
    view = random_bits(math.prod(shape), dtype, 7).view(shape)
    view = view.permute(data.draw(st.permutations(range(view.dim()))))
    for dimension, size in enumerate(view.shape):
        begin, step = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, 3))
        view = view[(slice(None),) * dimension + (slice(begin, None, step),)]
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, view.dim()))
        view = view.unsqueeze(place).expand(*view.shape[:place], data.draw(st.integers(1, 40)), *view.shape[place:])
    # then not a bit of the record differs from that of a copy
    assert NATIVE.digest([view]) == NATIVE.digest([view.clone(memory_format=torch.contiguous_format)])


def test_a_large_transposed_view_has_the_digest_of_its_copy() -> None:
    value = torch.randn(16, 128, 4, 33)
    for view in (value.transpose(1, 2), value.permute(3, 0, 2, 1), value[:, ::2, 1], value.to(torch.float64).mT):
        assert NATIVE.digest([view, value]) == NATIVE.digest([view.contiguous(), value])

"""Digests of tensors on the device: those of the same bits on the host, in few launches and one copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from numdrift.harness.observers.state.batches import Batches
from numdrift.harness.observers.values.digest import Digester, hash_text
from numdrift.harness.observers.values.digest_rows import SLICE
from numdrift.harness.records.values.digest_record import Digest, iter_unpack

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
OTHERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool, torch.complex64)
DTYPES = (*FLOATS, *OTHERS, torch.complex128, torch.float8_e4m3fn, torch.uint16, torch.uint32, torch.uint64)
BYTES = (0, 16, 48, 64, 80, 4080, 4096, 4112, 8192, 262128, 262144, 262160, 270000, SLICE // 4 + 6000)
"""Around a stripe, a block, a row of 64 blocks, and what is digested at once of a dtype of one byte."""


def random_bits(size: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    if dtype == torch.bool:
        return torch.randint(0, 2, (size,), generator=generator, dtype=torch.uint8).bool()
    return torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8).view(dtype)


def close(value: float, expected: float, scale: float) -> bool:
    return value == expected or abs(value - expected) <= 1e-12 * scale or (math.isnan(value) and math.isnan(expected))


def require_equal(digests: Sequence[Digest], expected: Sequence[Digest], described: Sequence[object]) -> None:
    """Sums may be added up in another order; all else is exact."""
    for one, other, what in zip(digests, expected, described, strict=True):
        scale = max(abs(other.minimum), abs(other.maximum))
        assert (one.hash, one.numel, one.nan, one.inf) == (other.hash, other.numel, other.nan, other.inf), what
        assert close(one.minimum, other.minimum, 0) and close(one.maximum, other.maximum, 0), what
        if math.isfinite(other.l2):  # otherwise, the sum may overflow in one order only
            assert close(one.mean, other.mean, scale) and close(one.l2, other.l2, other.l2), what


def check_digests_have_the_bits_of_the_host(standin: Any) -> None:
    native, by_torch = Digester(), Digester(native=False)
    assert native.implementation == "native"
    for dtype in DTYPES:
        there = [random_bits(size, dtype) for size in BYTES]
        if dtype in FLOATS:
            there += [tensor.nan_to_num(0.5, 1.0, -1.0).clamp(-3, 3) for tensor in there]
        placed = [tensor.to("standin") for tensor in there]
        digests = [*iter_unpack(native.launch(placed)())]
        for host in (native, by_torch):
            require_equal(digests, [*iter_unpack(host.digest(there))], [(dtype, each.shape) for each in there])


def check_small_tensors_have_the_records_of_the_host(standin: Any) -> None:
    values = [random_bits(16 * size, dtype) for dtype in DTYPES if not dtype.is_complex for size in (0, 1, 7, 300)]
    placed = [tensor.to("standin") for tensor in values]
    records, digester = Digester().launch(placed), Digester()
    for tensor in placed:
        tensor.view(torch.uint8).zero_()
    assert records() == digester.digest(values)


def check_a_batch_is_digested_as_it_was_at_its_call(standin: Any) -> None:
    batches, digester = Batches(Digester(), list), Digester()
    values = [torch.randn(40, 30), torch.randn(700, 800)]
    placed = [value.to("standin") for value in values]
    batches.called(placed, {})
    for tensor in placed:
        tensor.zero_()
    batches.called(placed[:1], {})
    [batch, [again]] = batches.settled(batches.take())
    expected = [hash_text(digester.digest([value])) for value in (*values, torch.zeros(40, 30))]
    assert [hash_ for _, _, hash_ in (*batch, again)] == expected


def check_layouts_do_not_matter(standin: Any) -> None:
    matrix = torch.randn(800, 700)
    images, pairs = torch.randn(8, 16, 20, 20), torch.randn(300, 300, dtype=torch.complex64)

    def layouts(device: str) -> list[torch.Tensor]:
        on, of_images, of_pairs = (each.to(device) for each in (matrix, images, pairs))
        return [
            on,
            on.t(),
            on[:, 3:500:2],
            on[7:, 1],
            on[5, 6],
            on[:1].expand(90, 700),
            on.view(-1)[1:],
            of_images.to(memory_format=torch.channels_last),
            of_images.permute(3, 0, 2, 1),
            of_images[:1].transpose(2, 3),
            of_pairs.conj(),
            of_pairs.conj().imag,
            of_pairs.t(),
            torch.tensor(-0.0).to(device),
            on[:0],
        ]

    digester = Digester()
    digests = [*iter_unpack(digester.launch(layouts("standin"))())]
    require_equal(digests, [*iter_unpack(digester.digest(layouts("cpu")))], range(len(digests)))


def check_tensors_of_several_devices_keep_their_order(standin: Any) -> None:
    values = [torch.randn(50), torch.randn(70000), torch.arange(9), torch.randn(3, 3), torch.eye(4).to_sparse()]
    freed = torch.ones(40, device="standin")
    freed.untyped_storage().resize_(0)
    placed = [values[0].to("standin:1"), values[1].to("standin"), values[2], values[3].to("standin:1"), values[4]]
    meta = torch.empty(6, device="meta")
    digester = Digester()
    digests = [*iter_unpack(digester.launch([meta, *placed, freed])())]
    require_equal(digests[1:-1], [*iter_unpack(digester.digest(values))], range(len(values)))
    assert [(digest.hash, digest.numel) for digest in (digests[0], digests[-1])] == [(0, 6), (0, 40)]


def work(standin: Any, digester: Digester, tensors: Sequence[torch.Tensor]) -> tuple[int, int, int]:
    """Return what digests cost: launches, copies to the host, copies to the device."""
    launches, copies = standin.launches(), standin.copies()
    digester.launch(tensors)()
    after = standin.copies()
    return standin.launches() - launches, after.to_host - copies.to_host, after.to_device - copies.to_device


def check_the_number_of_tensors_costs_nothing(standin: Any) -> None:
    digester = Digester()
    small = [torch.randn(30, 30, device="standin") for _ in range(600)]
    large = [torch.randn(300, 300, device="standin") for _ in range(40)]
    few = [*small[:5], torch.zeros((), dtype=torch.int64, device="standin"), torch.ones(3, device="standin").bool()]
    costs = {}
    for name, tensors in (("few", few), ("small", small), ("large", large), ("mixed", small + large)):
        work(standin, digester, tensors)  # the constants and the plan are copied to the device once
        costs[name] = work(standin, digester, tensors)
    assert [cost[1:] for cost in costs.values()] == [(1, 0)] * 4, costs
    assert costs["few"][0] == 1, costs
    assert costs["small"][0] <= 70, costs
    assert costs["large"][0] == costs["mixed"][0] <= 100, costs


def check_large_tensors_take_little_memory_and_few_launches(standin: Any) -> None:
    digester = Digester()
    large = torch.randn(2**24, device="standin")  # 64 MiB
    digester.launch([large[:9]])()
    before, launches = standin.memory_allocated(), standin.launches()
    standin.reset_peak_memory_stats()
    digester.launch([large])()
    assert standin.max_memory_allocated() - before < 5 * SLICE
    assert standin.launches() - launches <= 55 + 22 * 4


def check_a_device_without_memory_is_copied_from(standin: Any) -> None:
    notices: list[str] = []
    digester = Digester(notice=notices.append)
    values = torch.randn(2**20)
    filling = values.to("standin")
    expected = [*iter_unpack(digester.digest([values]))]
    for _ in range(2):
        require_equal([*iter_unpack(digester.launch([filling])())], expected, [""])
    (notice,) = notices
    assert notice.startswith("the tensors of standin:0 are copied to the CPU for their digests at each step: ")
    assert "out of memory" in notice


def check_an_error_of_the_training_is_not_hidden(standin: Any) -> None:
    notices: list[str] = []
    digester = Digester(notice=notices.append)
    embedding = torch.nn.Embedding(3, 2).to("standin")
    wrong = embedding(torch.tensor([7], device="standin"))
    try:
        digester.launch([wrong])()
    except RuntimeError as error:
        assert "index out of range" in str(error)
    else:
        raise AssertionError("no error")
    assert not notices


VARIABLES = {"check_a_device_without_memory_is_copied_from": {"STANDIN_MEMORY": str(6 << 20)}}

"""How many terms the ops' results add up, and by how much sums in any order may err."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from numdrift.harness.localize.errors.sum_lengths import terms_added

UNIT = 2.0**-24


@pytest.mark.parametrize(
    ("name", "sizes", "terms"),
    [
        ("mm", [(7, 300), (300, 5)], 300),
        ("addmm", [(5,), (7, 300), (300, 5)], 300),
        ("bmm", [(2, 7, 30), (2, 30, 5)], 30),
        ("convolution", [(8, 3, 32, 32), (16, 3, 5, 5), (16,)], 16 * 25),
        ("convolution_backward", [(32, 16, 32, 32), (32, 3, 32, 32), (16, 3, 3, 3)], 32 * 32 * 32),
        ("convolution_backward", [(2, 16, 4, 4), (2, 64, 4, 4), (16, 64, 3, 3)], 64 * 9),
        ("embedding_dense_backward", [(8, 512, 64), (8, 512)], 4096),
        ("native_layer_norm_backward", [(8, 512, 64), (8, 512, 64), (8, 512, 1), (8, 512, 1), (64,), (64,)], 4096),
        ("cudnn_batch_norm", [(32, 16, 8, 8), (16,), (16,)], 2048),
        ("sum", [(4096,)], 0),
        ("mm", [], 0),
    ],
)
def test_the_terms_follow_from_the_shapes(name: str, sizes: list[tuple[int, ...]], terms: int) -> None:
    assert terms_added(name, sizes) == terms


def roundings(kernel: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> float:
    """Return by how many times what rounding of the inputs causes a product of [N, K] and [K, M] errs."""
    exact = a.double() @ b.double()
    squares = torch.zeros(())
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        left, right = (
            one.double() * (1 + UNIT * (torch.randint(0, 2, one.shape, generator=generator) * 2 - 1)) for one in (a, b)
        )
        squares = squares + (left @ right - exact).square().sum() / 4
    return float((kernel(a, b).double() - exact).norm() / (squares.sqrt() + UNIT * exact.norm()))


def term_by_term(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


@pytest.mark.parametrize("terms", [256, 4096, 16384])
def test_sums_of_terms_added_one_by_one_err_by_no_more_than_the_root_of_their_number(terms: int) -> None:
    generator = torch.Generator().manual_seed(terms)
    a, b = torch.randn(16, terms, generator=generator), torch.randn(terms, 16, generator=generator)
    one_by_one = roundings(term_by_term, a, b)
    assert math.sqrt(terms) / 12 < one_by_one < math.sqrt(terms)
    # products of bfloat16 lie far beyond
    assert roundings(lambda a, b: (a.bfloat16() @ b.bfloat16()).float(), a, b) > 8 * math.sqrt(terms)

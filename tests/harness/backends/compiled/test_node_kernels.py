"""The nodes that are compiled together."""

from __future__ import annotations

import pytest
import torch

from numdrift.harness.backends.compiled.node_kernels import (
    COMPILE_SECONDS,
    TOGETHER,
    KernelTensor,
    NodeKind,
    compiled_together,
)

SMALL, LARGE = 8, 2048


def product(rows: int, columns: int = LARGE) -> NodeKind:
    factors = (
        KernelTensor(torch.float32, (rows, LARGE), (LARGE, 1), "cpu"),
        KernelTensor(torch.float32, (LARGE, columns), (columns, 1), "cpu"),
    )
    return NodeKind("aten.mm.default", factors, (), backward=False)


def sine(size: int) -> NodeKind:
    return NodeKind("aten.sin.default", (KernelTensor(torch.float32, (size,), (1,), "cpu"),), (), backward=False)


def test_small_nodes_are_compiled_in_full_groups() -> None:
    kinds = {sine(SMALL + number): 24 for number in range(2 * TOGETHER + 1)}
    groups = compiled_together(kinds)
    assert [len(group) for group in groups] == [TOGETHER, TOGETHER, 1]
    assert {kind for group in groups for kind in group} == kinds.keys()


def test_a_large_product_is_compiled_alone() -> None:
    # 17 GFLOP, so about 0.35 s each time
    kinds = {sine(SMALL): 24, product(LARGE): 12, sine(SMALL + 1): 24, product(LARGE + 1): 12}
    assert compiled_together(kinds) == [[sine(SMALL), sine(SMALL + 1)], [product(LARGE)], [product(LARGE + 1)]]


def test_nodes_that_are_needed_once_are_compiled_together() -> None:
    assert compiled_together({product(LARGE): 1, product(LARGE + 1): 1}) == [[product(LARGE), product(LARGE + 1)]]


@pytest.mark.parametrize("kind", [sine(1 << 22), product(LARGE)])
def test_no_group_is_executed_for_longer_than_it_takes_to_compile(kind: NodeKind) -> None:
    kinds = {sine((1 << 20) + number): 1 + number for number in range(40)} | {kind: 3}
    for group in compiled_together(kinds):
        if len(group) > 1:
            assert sum(kinds[each] for each in group) * sum(each.seconds() for each in group) <= COMPILE_SECONDS


def test_a_node_that_fails_on_fake_tensors_is_left_out() -> None:
    mismatched = NodeKind("aten.mm.default", (sine(3).arguments[0], sine(4).arguments[0]), (), backward=False)
    assert compiled_together({mismatched: 1, sine(SMALL): 1}) == [[sine(SMALL)]]


def test_the_time_of_a_node_follows_its_products_and_its_bytes() -> None:
    assert product(LARGE).seconds() == pytest.approx(2 * LARGE**3 / 5e10 + 3 * 4 * LARGE**2 / 4e9)
    assert sine(SMALL).seconds() == pytest.approx(2 * 4 * SMALL / 4e9)

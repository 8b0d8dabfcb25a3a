"""Which overloads of aten a swap takes over, and in which form each calls the kernel."""

from __future__ import annotations

import pytest
import torch

from numdrift.harness.errors import KernelNotFound
from numdrift.harness.torch_private.operators import aten_operations
from numdrift.kernels.swaps.swap import Target, targets_of


def by_overload(op: str) -> dict[str, Target]:
    return {str(target.overload).removeprefix("aten."): target for target in targets_of(op)}


def test_in_place_and_out_forms_belong_to_the_op() -> None:
    targets = by_overload("addcmul")
    assert set(targets) == {"addcmul.default", "addcmul.out", "addcmul_.default"}
    assert {target.functional_name for target in targets.values()} == {"addcmul.default"}


def test_each_form_computes_its_own_functional_overload() -> None:
    targets = by_overload("sum")
    assert targets["sum.IntList_out"].functional_name == "sum.dim_IntList"
    assert "sum.int" not in targets  # TorchScript's, of numbers


def test_one_overload_can_be_meant() -> None:
    assert set(by_overload("lerp.Scalar")) == {"lerp.Scalar", "lerp.Scalar_out", "lerp_.Scalar"}


def test_an_op_that_writes_in_a_form_of_its_own_is_its_own_functional() -> None:
    targets = by_overload("_fused_adam_")
    assert all(target.functional is target.overload and not target.writes for target in targets.values())


@pytest.mark.parametrize("op", ["tanh_backwards", "sum.dim_IntLis"])
def test_what_is_not_there_is_said_with_the_nearest(op: str) -> None:
    with pytest.raises(KernelNotFound, match=r"did you mean '(tanh_backward|dim_IntList)'"):
        targets_of(op)


def test_every_op_of_torch_that_takes_tensors_can_be_swapped() -> None:
    refused = []
    names = {full.removeprefix("aten::").partition(".")[0] for full in aten_operations()}
    for name in names:
        try:
            assert targets_of(name)
        except KernelNotFound:
            refused.append(name)
    assert len(names) > 1000
    assert {"arange", "randn", "view", "t", "detach", "expand"} <= set(refused) and len(refused) < 150


def test_in_place_form_writes_and_returns_its_argument() -> None:
    target = by_overload("addcmul")["addcmul_.default"]
    x, y = torch.ones(3), torch.full((3,), 2.0)
    result = target.call(lambda a, b, c, value=1: a + value * b * c, [x, y, y], {"value": 3})
    assert result is x
    assert torch.equal(x, torch.full((3,), 13.0))


def test_out_form_resizes_like_the_op() -> None:
    target = by_overload("mm")["mm.out"]
    out = torch.empty(0)
    result = target.call(torch.matmul, [torch.ones(2, 3), torch.ones(3, 4)], {"out": out})
    assert result is out and out.shape == (2, 4) and bool((out == 3).all())


def test_foreach_in_place_form_writes_every_tensor() -> None:
    target = by_overload("_foreach_add")["_foreach_add_.Scalar"]
    tensors = [torch.ones(2), torch.zeros(3)]
    assert target.call(lambda many, number: [one + number for one in many], [tensors, 5], {}) is None
    assert torch.equal(tensors[0], torch.full((2,), 6.0)) and torch.equal(tensors[1], torch.full((3,), 5.0))

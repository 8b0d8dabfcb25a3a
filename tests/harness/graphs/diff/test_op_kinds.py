"""One op under the names that the modes have for it."""

from __future__ import annotations

import pytest

from numdrift.harness.graphs.diff.op_kinds import computes, kind_of, kind_of_name, passes_through, role_of


@pytest.mark.parametrize(
    ("spellings", "kind"),
    [
        (["aten.t", "aten.t_copy", "aten.permute", "aten.transpose.int", "aten.transpose_copy"], "permute"),
        (["aten.view", "aten.view_copy", "aten._unsafe_view", "aten.reshape"], "view"),
        (["aten.expand", "aten.expand_copy"], "expand"),
        (["aten.detach", "aten.detach_copy", "aten.alias"], "detach"),
        (["aten.add.Tensor", "aten.add_.Tensor", "aten._foreach_add.List", "aten._foreach_add_"], "add"),
        (["aten._to_copy", "prims.convert_element_type", "aten.to.dtype"], "_to_copy"),
        (["aten.rsub.Scalar", "aten.sub.Tensor"], "sub"),
        (["aten._log_softmax", "aten.log_softmax.int"], "log_softmax"),
        (["aten.tanh_backward", "aten.tanh_backward.grad_input"], "tanh_backward"),
        (["aten.index_copy", "aten.index_copy_"], "index_copy"),
        (["aten.copy_"], "copy"),
        (["aten.__and__.Tensor"], "__and__"),
        (["numdrift.tanh_backward"], "numdrift.tanh_backward"),
    ],
)
def test_spellings_of_one_op_are_one_kind(spellings: list[str], kind: str) -> None:
    assert {kind_of_name(one) for one in spellings} == {kind}


def test_different_ops_stay_different() -> None:
    ops = [
        "tanh",
        "tanh_backward",
        "mm",
        "bmm",
        "addmm",
        "mul",
        "sub",
        "sum",
        "mean",
        "view",
        "permute",
        "clone",
    ]
    assert len({kind_of("aten", op) for op in ops}) == len(ops)


@pytest.mark.parametrize(
    ("kind", "role", "counts"),
    [
        ("mul", "elementwise", True),
        ("sum", "reduction", True),
        ("addmm", "product", True),
        ("tanh_backward", "compute", True),
        ("_to_copy", "cast", False),
        ("full", "fill", False),
        ("permute", "view", False),
        ("detach", "bookkeeping", False),
    ],
)
def test_a_kind_has_the_role_that_its_arithmetic_gives_it(kind: str, role: str, counts: bool) -> None:
    assert (role_of(kind), computes(kind)) == (role, counts)


def test_only_what_leaves_numbers_alone_passes_them_through() -> None:
    assert [one for one in ("view", "permute", "detach", "_to_copy", "neg", "full") if passes_through(one)] == [
        "view", "permute", "detach",
    ]  # fmt: skip

"""Copies of a call's arguments keep layouts and overlaps."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import torch

from numdrift.harness.script.calls.call_copies import copied, tensors_of

Pair = namedtuple("Pair", "left right")


def test_values_strides_and_gradients_stay() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    views = [base.t(), base[:, ::2], base[1:, 1:], torch.ones(3).expand(2, 3), base.to(torch.bfloat16).requires_grad_()]
    for original, copy in zip(views, copied(views), strict=True):
        assert torch.equal(original, copy)
        assert original.stride() == copy.stride()
        assert original.requires_grad == copy.requires_grad
        assert copy.is_leaf


def test_tensors_that_share_memory_share_it_in_the_copy() -> None:
    x = torch.zeros(4)
    whole, view, again = copied((x, x[::2], x))
    whole[2] = 7
    assert view.tolist() == [0, 7]
    assert again is whole
    assert x.tolist() == [0, 0, 0, 0]


def test_containers_keep_their_types() -> None:
    @dataclass(frozen=True)
    class State:
        hidden: torch.Tensor
        steps: int

    value = {"state": State(torch.ones(2), 3), "pair": Pair(torch.zeros(1), [torch.ones(1)]), "mode": "mean"}
    copy = copied(value)
    assert copy["state"].hidden is not value["state"].hidden  # type: ignore[attr-defined]
    assert copy["state"].steps == 3
    assert isinstance(copy["pair"], Pair)
    assert copy["mode"] == "mean"


def test_sparse_tensors_and_conjugates_are_copied() -> None:
    sparse, conjugate = torch.eye(3).to_sparse(), torch.tensor([1 + 2j]).conj()
    copies = copied((sparse, conjugate))
    assert torch.equal(copies[0].to_dense(), torch.eye(3))
    assert copies[1].is_conj()
    assert copies[1].tolist() == [1 - 2j]


def test_names_of_tensors() -> None:
    x = torch.zeros(1)
    value = {"x": x, "states": (torch.ones(1), [torch.ones(2)]), "again": x, "pair": Pair(torch.ones(3), 2)}
    assert [name for name, _ in tensors_of(value)] == ["x", "states_0", "states_1_0", "pair_left"]

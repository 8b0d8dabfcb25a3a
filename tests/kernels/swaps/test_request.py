"""The `kernel.` and `decompose.` keys of a mode."""

from __future__ import annotations

import pytest

from numdrift.harness.errors import UsageError
from numdrift.kernels.swaps.request import SwapRequest, swap_requests


@pytest.mark.parametrize(
    ("key", "op", "module", "occurrence"),
    [
        ("tanh_backward", "tanh_backward", None, None),
        ("aten.tanh_backward", "tanh_backward", None, None),
        ("sum.dim_IntList", "sum.dim_IntList", None, None),
        ("tanh_backward@net.1", "tanh_backward", "net.1", None),
        ("tanh_backward@net.1:0", "tanh_backward", "net.1", 0),
        ("tanh_backward@:12", "tanh_backward", None, 12),
        ("_foreach_add_", "_foreach_add_", None, None),
    ],
)
def test_a_key_is_read(key: str, op: str, module: str | None, occurrence: int | None) -> None:
    assert swap_requests({key: "fma"}, {}) == (SwapRequest(f"kernel.{key}", op, "fma", module, occurrence),)


@pytest.mark.parametrize("key", ["", "tanh_backward@", "tanh_backward@net:", "tanh_backward@net:x", "a.b.c", "@net"])
def test_a_key_that_is_none_is_refused_with_the_form(key: str) -> None:
    with pytest.raises(UsageError, match=r"names no module after @|OP@MODULE:N"):
        swap_requests({key: "fma"}, {})


def test_decompose_off_asks_for_the_op_itself() -> None:
    (request,) = swap_requests({}, {"tanh_backward": "off"})
    assert (request.op, request.kernel, request.from_decomposition) == ("tanh_backward", "aten", True)
    assert str(request) == "decompose.tanh_backward=off"


def test_decompose_has_no_scope() -> None:
    with pytest.raises(UsageError, match=r"decompose\.tanh_backward@net is not a swap"):
        swap_requests({}, {"tanh_backward@net": "off"})


def test_the_path_of_an_own_kernel_is_told_from_a_name() -> None:
    own, named = swap_requests({"tanh_backward": "folder/mine.c", "gelu": "fp64"}, {})
    assert own.is_own and not named.is_own

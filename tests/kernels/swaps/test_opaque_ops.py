"""The ops that stand for swapped kernels in compiled graphs keep torch's contract for custom ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.nn import functional

from numdrift.kernels.registry import KernelRegistry, built_in
from numdrift.kernels.swaps.engine import Swaps
from numdrift.kernels.swaps.request import swap_requests


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y, GRADIENT = randn(6, 5), randn(6, 5, seed=1), randn(6, 5, seed=2)
NORMALIZED = torch.native_layer_norm(X, [5], None, None, 1e-5)

CASES: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "tanh_backward": (lambda: torch.ops.aten.tanh_backward(GRADIENT, Y), (GRADIENT, Y)),
    "sigmoid_backward": (lambda: torch.ops.aten.sigmoid_backward(GRADIENT, Y), (GRADIENT, Y)),
    "silu_backward": (lambda: torch.ops.aten.silu_backward(GRADIENT, X), (GRADIENT, X)),
    "gelu": (lambda: functional.gelu(X), (X,)),
    "gelu_backward": (lambda: torch.ops.aten.gelu_backward(GRADIENT, X), (GRADIENT, X)),
    "addcmul": (lambda: torch.addcmul(X, X, Y), (X, X, Y)),
    "addcdiv": (lambda: torch.addcdiv(X, X, Y), (X, X, Y)),
    "lerp.Tensor": (lambda: torch.lerp(X, X, Y), (X, X, Y)),
    "_softmax": (lambda: torch.softmax(X, 1), (X, 1, False)),
    "_log_softmax": (lambda: torch.log_softmax(X, 1), (X, 1, False)),
    "native_layer_norm": (lambda: functional.layer_norm(X, [5]), (X, [5], None, None, 1e-5)),
    "native_layer_norm_backward": (
        lambda: torch.ops.aten.native_layer_norm_backward(
            GRADIENT, X, [5], *NORMALIZED[1:], None, None, [True, False, False]
        ),
        (GRADIENT, X, [5], *NORMALIZED[1:], None, None, [True, False, False]),
    ),
    "mm": (lambda: torch.mm(X, Y.t()), (X, Y.t())),
    "addmm": (lambda: torch.addmm(X[:, :1], X, Y.t()), (X[:, :1], X, Y.t())),
    "sum.dim_IntList": (lambda: X.sum(1), (X, [1])),
    "mean.dim": (lambda: X.mean(1), (X, [1])),
}


@pytest.fixture(scope="module")
def registry() -> KernelRegistry:
    return built_in()


@pytest.mark.slow
@pytest.mark.parametrize("op", CASES)
def test_opcheck(op: str, registry: KernelRegistry) -> None:
    # given the opaque op of a graph that was traced
    function, arguments = CASES[op]
    torch._dynamo.reset()
    swaps = Swaps(swap_requests({op: "aten"}, {}), registry)
    swaps.install("cpu", compiled=True)
    try:
        expected = torch.compile(function, backend="aot_eager_decomp_partition")()
        opaque = getattr(torch.ops.numdrift, (op if "." in op else f"{op}.default").replace(".", "_")).default
        # then
        assert swaps.counts()[0].calls == 1
        torch.library.opcheck(opaque, (0, *arguments))
        result = opaque(0, *arguments)
        first, wanted = (one[0] if isinstance(one, (list, tuple)) else one for one in (result, expected))
        assert torch.equal(first, wanted)
    finally:
        swaps.close()

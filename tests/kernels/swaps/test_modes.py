"""A swapped kernel gives the bits of the kernel called directly, in eager, compile and lazy mode alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch.nn import functional

from numdrift.harness.torch_private.compiler.compiling import set_inductor_numerics
from numdrift.kernels.registry import KernelRegistry

MODES = ["cpu", pytest.param("compile", marks=pytest.mark.slow), "lazy"]
TANH_BACKWARD = ["aten", "decomposed", "fma", "mac", "mac_unfused", "factored", "bf16", "fp64"]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.view(torch.int32), b.view(torch.int32))


def tanh_and_gradient(x: torch.Tensor, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.tanh(x)
    return y, torch.autograd.grad(y, x, gradient)[0]


@pytest.fixture
def x() -> torch.Tensor:
    # a third of the values saturates tanh; 1003 elements leave a tail behind every vector loop
    return (4 * torch.randn(17, 59, generator=torch.Generator().manual_seed(1))).requires_grad_()


@pytest.fixture
def gradient() -> torch.Tensor:
    return torch.randn(17, 59, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("kernel", TANH_BACKWARD)
@pytest.mark.parametrize("mode", MODES)
def test_tanh_backward_has_the_bits_of_the_kernel(
    mode: str, kernel: str, x: torch.Tensor, gradient: torch.Tensor, execute: Any, registry: KernelRegistry
) -> None:
    # when
    executed = execute(mode, {"tanh_backward": kernel}, tanh_and_gradient, x, gradient)
    # then
    y, found = executed.results
    direct = registry.kernel("tanh_backward", kernel).load()(gradient, y)
    assert same_bits(found, direct)
    assert executed.counts[0].backward == executed.counts[0].calls == 1


FORWARD: list[tuple[str, str, Callable[[torch.Tensor], torch.Tensor], tuple[Any, ...]]] = [
    ("gelu", "fp64", functional.gelu, ()),
    ("_softmax", "fp64", lambda x: torch.softmax(x, 1), (1, False)),
    ("_log_softmax", "decomposed", lambda x: torch.log_softmax(x, 1), (1, False)),
    ("sum.dim_IntList", "pairwise", lambda x: x.sum(1), ([1],)),
    ("sum.dim_IntList", "kahan", lambda x: x.sum(1), ([1],)),
]


@pytest.mark.parametrize(("op", "kernel", "function", "others"), FORWARD, ids=[f"{row[0]}-{row[1]}" for row in FORWARD])
@pytest.mark.parametrize("mode", MODES)
def test_forward_ops_have_the_bits_of_the_kernel(
    mode: str,
    op: str,
    kernel: str,
    function: Callable[[torch.Tensor], torch.Tensor],
    others: tuple[Any, ...],
    x: torch.Tensor,
    execute: Any,
    registry: KernelRegistry,
) -> None:
    executed = execute(mode, {op: kernel}, function, x.detach())
    direct = registry.kernel(op.partition(".")[0], kernel).load()(x.detach(), *others)
    assert same_bits(executed.results[0], direct)
    assert executed.counts[0].forward == 1


@pytest.mark.parametrize("kernel", ["split_k", "fp64"])
@pytest.mark.parametrize("mode", MODES)
def test_matrix_products_have_the_bits_of_the_kernel(
    mode: str, kernel: str, x: torch.Tensor, execute: Any, registry: KernelRegistry
) -> None:
    a, b = x.detach(), x.detach().t().contiguous()
    executed = execute(mode, {"mm": kernel}, torch.mm, a, b)
    assert same_bits(executed.results[0], registry.kernel("mm", kernel).load()(a, b))


@pytest.mark.parametrize("mode", MODES)
def test_a_composite_op_is_swapped_above_autograd(mode: str, x: torch.Tensor, execute: Any) -> None:
    """`linear` taken apart into t, mm and add: gradients flow through its parts."""
    weight = torch.randn(8, 59, generator=torch.Generator().manual_seed(3)).requires_grad_()
    bias = torch.zeros(8)

    def train(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = functional.linear(x, weight, bias)
        return y, torch.autograd.grad(y.sum(), weight)[0]

    executed = execute(mode, {"linear": "decomposed"}, train, x.detach(), weight, bias)
    expected = x.detach().double() @ weight.detach().double().t()
    assert torch.allclose(executed.results[0].double(), expected, atol=1e-4)
    assert torch.allclose(executed.results[1].double(), x.detach().double().sum(0).expand(8, -1), atol=1e-4)
    counts = executed.counts[0]
    assert counts.traced if mode == "compile" else counts.forward == 1


@pytest.mark.slow
def test_decompose_off_is_the_kernel_of_eager_in_compile(x: torch.Tensor, gradient: torch.Tensor, execute: Any) -> None:
    y, plain = execute("compile", {}, tanh_and_gradient, x, gradient).results
    assert same_bits(plain, gradient * (1 - y * y)), "Inductor decomposes by itself"
    executed = execute("compile", {}, tanh_and_gradient, x, gradient, decompose={"tanh_backward": "off"})
    y, found = executed.results
    assert same_bits(found, torch.ops.aten.tanh_backward(gradient, y))
    assert executed.counts[0].backward == 1


@pytest.mark.slow
def test_the_swapped_graph_is_not_taken_from_the_cache_of_the_unswapped(
    x: torch.Tensor, gradient: torch.Tensor, execute: Any, registry: KernelRegistry
) -> None:
    for kernel in ("decomposed", "bf16", "aten", "bf16"):
        plain = execute("compile", {}, tanh_and_gradient, x, gradient).results
        y, found = execute("compile", {"tanh_backward": kernel}, tanh_and_gradient, x, gradient).results
        assert same_bits(plain[1], gradient * (1 - plain[0] * plain[0]))
        assert same_bits(found, registry.kernel("tanh_backward", kernel).load()(gradient, y))


@pytest.fixture
def contraction() -> Iterator[None]:
    """Inductor's C++ may contract a*b+c."""
    config = torch._inductor.config.cpp
    before = config.enable_floating_point_contract_flag
    set_inductor_numerics(contract=True, emulate_casts=None, fallback_random=None)
    yield
    config.enable_floating_point_contract_flag = before


@pytest.mark.slow
def test_contraction_makes_inductors_tanh_backward_a_fused_one(
    x: torch.Tensor, gradient: torch.Tensor, execute: Any, contraction: None, registry: KernelRegistry
) -> None:
    """That is eager's where ATen has vector code for the processor: its plain code contracts nothing."""
    y, found = execute("compile", {}, tanh_and_gradient, x, gradient).results
    assert same_bits(found, registry.kernel("tanh_backward", "fma").load()(gradient, y))

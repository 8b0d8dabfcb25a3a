"""The kernels that every op has: `aten`, `decomposed`, `fp64` and `inductor`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from numdrift.harness.errors import KernelError, KernelNotFound, NotAvailable
from numdrift.harness.torch_private.dispatching import bare_execution
from numdrift.kernels.registry import Kernel, KernelRegistry, built_in

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def registry() -> KernelRegistry:
    return built_in()


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["aten", "decomposed", "fp64"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_op_without_an_entry_has_three_kernels(name: str, dtype: torch.dtype, registry: KernelRegistry) -> None:
    x = randn(7, 5).to(dtype)
    found = registry.kernel("mish", name).load()(x)
    assert found.dtype == dtype
    # one rounding of the exact value, up to the tie or the few ULP that the kernel may be off
    exact = torch.ops.aten.mish(x.double())
    assert torch.allclose(found.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=1e-6)


def test_fp64_is_the_nearest_number(registry: KernelRegistry) -> None:
    x = randn(10_000)
    assert torch.equal(registry.kernel("exp", "fp64").load()(x), torch.exp(x.double()).float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_fp64_rounds_once_to_the_half_formats(dtype: torch.dtype, registry: KernelRegistry) -> None:
    """A value just above the middle of two halves: by way of float32 it would become that middle, and then the even one."""
    eps = torch.finfo(dtype).eps
    x = torch.tensor([1.0, 1 + eps], dtype=dtype)
    added = torch.tensor([eps / 2, eps / 2], dtype=dtype)
    least = 2.0**-24 if dtype == torch.float16 else 2.0**-40
    tiny = torch.tensor([least, -least], dtype=torch.float64)
    exact = x.double() + added.double() + tiny

    found = registry.kernel("sum.dim_IntList", "fp64").load()(torch.stack([x, added, tiny.to(dtype)]), [0])

    assert [found[0].item(), found[1].item()] == [1 + eps, 1 + eps]
    assert exact.to(dtype)[0].item() == 1.0, "torch's cast rounds twice"


def test_fp64_writes_what_the_op_writes(registry: KernelRegistry) -> None:
    state, a, b = randn(4), randn(4, seed=1), randn(4, seed=2)
    expected = (state.double() + a.double() * b.double()).float()
    result = registry.kernel("addcmul_", "fp64").load()(state, a, b)
    assert result is state and torch.equal(state, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fp64_gives_the_statistics_in_the_dtype_of_the_op(dtype: torch.dtype, registry: KernelRegistry) -> None:
    arguments: tuple[Any, ...] = (randn(4, 8).to(dtype), [8], None, None, 1e-5)
    own = torch.native_layer_norm(*arguments)
    found = registry.kernel("native_layer_norm", "fp64").load()(*arguments)
    assert [(one.shape, one.dtype) for one in found] == [(one.shape, one.dtype) for one in own]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fp64_asks_for_no_narrower_dtype(dtype: torch.dtype, registry: KernelRegistry) -> None:
    """CUDA's softmax refuses a dtype that its arguments do not have."""
    gradient, y = randn(40, 30).to(dtype), randn(40, 30, seed=1).softmax(-1).to(dtype)
    asked: list[torch.dtype] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.extend(one for one in args if isinstance(one, torch.dtype) and "_softmax_backward" in str(func))
            return func(*args, **(kwargs or {}))

    kernel = registry.kernel("_softmax_backward_data", "fp64").load()
    with Watching():  # type: ignore[no-untyped-call]
        found = kernel(gradient, y, -1, dtype)

    exact = y.double() * (gradient.double() - (gradient.double() * y.double()).sum(-1, keepdim=True))
    assert asked[-1] == torch.float64 and found.dtype == dtype
    assert torch.allclose(found.double(), exact, rtol=torch.finfo(dtype).eps / 2, atol=0)


@pytest.mark.slow
def test_inductor_is_what_compile_generates(registry: KernelRegistry) -> None:
    gradient, y = randn(17, 59), torch.tanh(3 * randn(17, 59, seed=1))
    found = registry.kernel("tanh_backward", "inductor").load()(gradient, y)
    assert torch.equal(found, gradient * (1 - y * y))
    # which is not the fused one that eager mode has where ATen has vector code for the processor
    assert not torch.equal(found, registry.kernel("tanh_backward", "fma").load()(gradient, y))


@pytest.mark.slow
def test_inductor_compiles_every_kind_of_arguments(registry: KernelRegistry) -> None:
    """torch falls back to eager execution after eight kinds, without a word."""
    kernel = registry.kernel("tanh_backward", "inductor").load()
    for rows in range(1, 12):
        gradient, y = randn(rows, 59), torch.tanh(3 * randn(rows, 59, seed=1))
        assert torch.equal(kernel(gradient, y), gradient * (1 - y * y))


@pytest.mark.parametrize("name", ["fp64", "decomposed"])
def test_random_ops_are_not_replayed(name: str, registry: KernelRegistry) -> None:
    state = torch.get_rng_state()
    with pytest.raises(KernelError, match="draws random numbers"):
        registry.kernel("native_dropout", name).load()(randn(3), 0.5, True)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_op_that_may_draw_is_replayed_where_it_does_not(registry: KernelRegistry) -> None:
    query = randn(1, 2, 4, 8)
    found, _ = registry.kernel("_scaled_dot_product_attention_math", "fp64").load()(query, query, query)
    weights = torch.softmax(query.double() @ query.double().transpose(-1, -2) / 8**0.5, -1)
    assert torch.allclose(found.double(), weights @ query.double(), atol=1e-7)


def test_an_op_without_a_decomposition_says_so(registry: KernelRegistry) -> None:
    with pytest.raises(NotAvailable, match="torch ships no decomposition"):
        registry.kernel("_foreach_asin", "decomposed").load()([randn(3)])


def test_what_is_not_there_is_named_with_the_nearest(registry: KernelRegistry) -> None:
    with pytest.raises(KernelNotFound, match=r"no kernel 'fmaa'; did you mean 'fma'"):
        registry.kernel("tanh_backward", "fmaa")
    with pytest.raises(KernelNotFound, match=r"no op aten\.mishh; did you mean 'mish'"):
        registry.kernel("mishh", "fp64").load()(randn(3))


def test_a_taken_name_is_refused_and_shown() -> None:
    registry = built_in()
    with pytest.raises(ValueError, match=r"tanh_backward=fma is already numdrift\.kernels"):
        registry.add(Kernel("tanh_backward", "fma", "", "", "other:function"))


def test_every_record_can_be_read_and_loaded(registry: KernelRegistry) -> None:
    for operation in registry.operations():
        for kernel in registry.kernels(operation.name):
            assert kernel.description and kernel.formula, f"{kernel.op}={kernel.name}"
            assert kernel.of_any_op or kernel.source, f"{kernel.op}={kernel.name}"
            assert callable(kernel.load())


@pytest.mark.slow
def test_inductor_compiles_where_dispatch_modes_are_hidden(registry: KernelRegistry) -> None:
    """As in the replay of a step, where a shape may be met for the first time."""
    x = randn(3, 7)
    with bare_execution():
        found = registry.kernel("tanh", "inductor").load()(x)
    assert torch.equal(found, torch.compile(torch.tanh)(x))

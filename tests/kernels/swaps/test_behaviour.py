"""A swapped op behaves as the original does: in-place forms, strides, autocast, hidden mutations, other dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from numdrift.harness.errors import KernelError
from numdrift.kernels.registry import Kernel, KernelRegistry, built_in


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_in_place_form_writes_into_its_argument(execute: Any) -> None:
    def update(state: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        same = state.addcmul_(a, b, value=0.5)
        return same, state

    state, a, b = randn(5), randn(5, seed=1), randn(5, seed=2)
    executed = execute("cpu", {"addcmul": "fp64"}, update, state.clone(), a, b)
    exact = (state.double() + 0.5 * a.double() * b.double()).float()
    assert torch.equal(executed.results[0], exact) and torch.equal(executed.results[1], exact)
    assert executed.counts[0].calls == 1


@pytest.mark.parametrize("mode", ["cpu", "lazy", pytest.param("compile", marks=pytest.mark.slow)])
def test_batch_norm_goes_on_updating_its_statistics(mode: str, execute: Any) -> None:
    """native_batch_norm mutates them with no annotation in its schema."""

    def normalize(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return functional.batch_norm(x, mean, var, training=True, momentum=0.1), mean, var

    x = randn(16, 4)
    executed = execute(mode, {"native_batch_norm": "fp64"}, normalize, x, torch.zeros(4), torch.ones(4))
    wide = x.double()
    assert torch.allclose(executed.results[1].double(), 0.1 * wide.mean(0), atol=1e-7)
    assert torch.allclose(executed.results[2].double(), 0.9 + 0.1 * wide.var(0), atol=1e-6)
    assert executed.counts[0].forward == 1


@pytest.mark.parametrize("kernel", ["fp64", "decomposed"])
@pytest.mark.parametrize("layout", ["transposed", "expanded", "sliced", "channels_last"])
def test_strides_and_values_are_those_of_the_op(kernel: str, layout: str, execute: Any) -> None:
    x = {
        "transposed": randn(6, 4).t(),
        "expanded": randn(1, 4).expand(3, 4),
        "sliced": randn(8, 9)[1::2, 2:],
        "channels_last": randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    }[layout]
    strides = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y = functional.gelu(x)
        strides.append(y.stride())
        return y

    swapped = execute("cpu", {"gelu": kernel}, function, x).results[0]
    plain = execute("cpu", {}, function, x).results[0]
    assert strides[0] == strides[1]
    assert torch.allclose(swapped, plain, atol=1e-6)


def test_autocast_hands_the_kernel_its_own_dtype(execute: Any) -> None:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return a @ b

    executed = execute("cpu", {"mm": "fp64"}, product, randn(4, 5), randn(5, 6, seed=1))
    a, b = randn(4, 5).bfloat16().double(), randn(5, 6, seed=1).bfloat16().double()
    assert executed.results[0].dtype == torch.bfloat16
    assert torch.equal(executed.results[0], (a @ b).bfloat16())


def test_what_is_no_floating_point_tensor_is_left_to_torch(execute: Any) -> None:
    executed = execute("cpu", {"sum": "fp64"}, torch.sum, torch.arange(5))
    assert executed.results[0].item() == 10 and executed.counts[0].calls == 0


def test_a_kernel_that_calls_its_own_op_reaches_torchs(execute: Any, registry: KernelRegistry) -> None:
    executed = execute("cpu", {"mm": "split_k"}, torch.mm, randn(3, 8), randn(8, 3, seed=1))
    assert executed.counts[0].calls == 1


def test_phases_are_counted_apart(execute: Any) -> None:
    def step(weight: torch.Tensor) -> torch.Tensor:
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.mul(3).sum().backward()
        optimizer.step()
        return weight

    counts = execute("cpu", {"mul": "fp64"}, step, randn(3).requires_grad_()).counts[0]
    assert (counts.forward, counts.backward) == (1, 1)


class Net(torch.nn.Module):
    """Three tanh: net.1, net.3 and one of the outermost module's own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        parts = [torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Tanh()]
        self.net = torch.nn.Sequential(*parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.net(x))


@pytest.mark.parametrize("mode", ["cpu", "lazy", pytest.param("compile", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("scope", "calls"),
    [("net.1", 1), ("net", 2), ("net:1", 1), (":0", 1), (":3", 0), ("ne", 0), ("net.0", 0)],
)
def test_a_scope_is_kept(mode: str, scope: str, calls: int, execute: Any) -> None:
    def train(x: torch.Tensor) -> torch.Tensor:
        net = Net().to(x.device)
        if mode == "compile":
            net.compile()
        net(x).sum().backward()
        return x

    counts = execute(mode, {f"tanh_backward@{scope}": "bf16"}, train, randn(5, 4), whole=False).counts[0]
    assert counts.backward == counts.calls == calls


def test_the_narrower_scope_wins(execute: Any) -> None:
    def gradients(x: torch.Tensor) -> torch.Tensor:
        net = Net()
        net(x).sum().backward()
        return x

    kernels = {"tanh_backward": "fp64", "tanh_backward@net": "mac", "tanh_backward@net:0": "fma"}
    counts = execute("cpu", kernels, gradients, randn(5, 4)).counts
    assert [count.backward for count in counts] == [1, 1, 1]


def own(op: str, target: str, **facts: Any) -> KernelRegistry:
    registry = built_in()
    registry.add(Kernel(op=op, name="own", description="", formula="", target=target, **facts))
    return registry


@pytest.mark.parametrize("mode", ["cpu", "lazy", pytest.param("compile", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("operator:floordiv", "gelu=own raised TypeError"),
        ("torch:sum", r"returned float32\[\] where the op returns float32\[5, 4\]"),
        ("torch.linalg:matrix_norm", r"returned float32\[\] where"),
        ("torch:isnan", r"returned bool\[5, 4\] where the op returns float32\[5, 4\]"),
        ("torch:unbind", "returned 5 tensors where the op returns 1"),
    ],
)
def test_a_kernel_that_is_wrong_is_named(mode: str, target: str, said: str, execute: Any) -> None:
    with pytest.raises(Exception, match=said):
        execute(mode, {"gelu": "own"}, functional.gelu, randn(5, 4), kernel_registry=own("gelu", target))


def test_a_dtype_that_the_kernel_lacks_is_named(execute: Any) -> None:
    registry = own("gelu", "torch:relu", dtypes=("float64",))
    with pytest.raises(KernelError, match="gelu=own computes float64, but the script calls it with float32 on cpu"):
        execute("cpu", {"gelu": "own"}, functional.gelu, randn(3), kernel_registry=registry)


@pytest.mark.slow
@pytest.mark.parametrize(("scope", "places"), [("net.0", 1), ("net", 2), ("net:1", 1)])
def test_a_composite_op_is_scoped_in_compiled_graphs(scope: str, places: int, execute: Any) -> None:
    def train(x: torch.Tensor) -> torch.Tensor:
        net = Net()
        net.compile()
        net(x).sum().backward()
        return x

    counts = execute("compile", {f"linear@{scope}": "fp64"}, train, randn(5, 4), whole=False).counts[0]
    assert (counts.traced, counts.calls) == (places, 0)


@pytest.mark.parametrize("mode", ["cpu", pytest.param("compile", marks=pytest.mark.slow)])
def test_an_op_that_returns_a_named_tuple_and_has_overloads_of_torchscript(mode: str, execute: Any) -> None:
    x = randn(6, 5)
    executed = execute(mode, {"sort": "fp64"}, lambda x: torch.sort(x, 1), x)
    assert torch.equal(executed.results[0], torch.sort(x, 1).values)
    assert torch.equal(executed.results[1], torch.sort(x, 1).indices)
    assert executed.counts[0].calls == 1


def test_a_kernel_that_writes_to_an_argument_is_named(execute: Any, tmp_path: Path) -> None:
    writing = tmp_path / "own.py"
    writing.write_text("def gelu(self, *, approximate='none'):\n    return self.relu_()\n")
    registry = own("gelu", "numdrift.kernels.user:load", path=str(writing))
    with pytest.raises(KernelError, match="gelu=own wrote to its argument 'self', which the op leaves unchanged"):
        execute("cpu", {"gelu": "own"}, functional.gelu, randn(3), kernel_registry=registry)


def test_everything_is_put_back(execute: Any) -> None:
    x = randn(100)
    before = functional.gelu(x)
    execute("cpu", {"gelu": "bf16", "tanh_backward": "bf16"}, functional.gelu, x)
    assert torch.equal(functional.gelu(x), before)


@pytest.mark.parametrize("mode", ["cpu", "lazy"])
def test_fp64_leaves_out_the_gradients_that_nobody_asks_for(mode: str, execute: Any) -> None:
    # given a module whose input needs no gradient
    weight, bias = torch.ones(8, requires_grad=True), torch.zeros(8, requires_grad=True)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))

    def gradients(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = torch.nn.functional.layer_norm(x, [8], weight, bias).square().sum()
        return torch.autograd.grad(loss, (weight, bias))

    # when
    swapped = execute(mode, {"native_layer_norm_backward": "fp64"}, gradients, x, weight, bias)
    # then
    assert [count.backward for count in swapped.counts] == [1]
    for found, expected in zip(swapped.results, gradients(x, weight, bias), strict=True):
        torch.testing.assert_close(found, expected)

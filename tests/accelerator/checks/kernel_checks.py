"""Kernels whose bits are not the host's, kernels that do not repeat, and outputs that nobody fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Compute = Callable[..., torch.Tensor]


def both(compute: Compute, *values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the host and the device compute."""
    return compute(*values), compute(*(value.to("standin") for value in values)).cpu()


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def require_close(compute: Compute, *values: torch.Tensor, ulps: float = 64) -> None:
    """Require other bits than the host's, by rounding only."""
    host, device = both(compute, *values)
    assert host.dtype == device.dtype
    assert not torch.equal(host, device), compute
    exact = compute(*(value.double() for value in values))
    assert (device - exact).abs().max() <= ulps * torch.finfo(host.dtype).eps * exact.abs().max(), compute


def check_sums_and_products_are_added_in_another_order(standin: Any) -> None:
    for dtype in (torch.float32, torch.float64):
        left, right = numbers(96, 200, dtype=dtype), numbers(200, 72, seed=1, dtype=dtype)
        for reduce in (lambda x: x.sum(0), lambda x: x.mean((1,)), lambda x: x.sum(1, True)):
            require_close(reduce, left)
        require_close(torch.mm, left, right)
        require_close(lambda a, b: torch.addmm(b[0], a, b, beta=2, alpha=0.5), left, right)
        require_close(torch.bmm, left.view(4, 24, 200), right.expand(4, -1, -1))
        require_close(F.linear, left, right.t())


def check_bfloat16_is_added_in_float32(standin: Any) -> None:
    left, right = numbers(96, 200, dtype=torch.bfloat16), numbers(200, 72, seed=1, dtype=torch.bfloat16)
    for compute in (torch.mm, lambda a, b: torch.addmm(b[0], a, b), lambda a, b: a.sum(1), lambda a, b: a.mean(0)):
        exact = compute(left.double(), right.double())
        device = compute(left.to("standin"), right.to("standin")).cpu().double()
        torch.testing.assert_close(device, exact, rtol=2**-8, atol=2**-12)  # half a unit in the last place


def check_what_has_no_order_is_the_hosts(standin: Any) -> None:
    for values in (torch.arange(100).view(10, 10), torch.ones(10, 10), numbers(10, 1), numbers(0, 10)):
        for reduce in (lambda x: x.sum(1), lambda x: x.sum(-1, keepdim=True)):
            host, device = both(reduce, values)
            assert torch.equal(host, device)
    host, device = both(torch.mm, torch.arange(6).view(2, 3), torch.arange(6).view(3, 2))
    assert torch.equal(host, device)


def check_the_backward_of_tanh_is_fused(standin: Any) -> None:
    grad, output = numbers(1000), numbers(1000, seed=1).tanh()
    host, device = both(torch.ops.aten.tanh_backward, grad, output)
    exact = torch.ops.aten.tanh_backward(grad.double(), output.double())
    assert not torch.equal(host, device)
    assert (device - exact).abs().sum() < (host - exact).abs().sum()
    assert torch.equal(device, exact.float())


def scatters() -> dict[str, Callable[[], torch.Tensor]]:
    """Sums over indices that meet often."""
    index = torch.randint(5, (4000,), generator=torch.Generator().manual_seed(0)).to("standin")
    rows = numbers(4000, 8).to("standin")

    def embedding() -> torch.Tensor:
        weight = torch.zeros(5, 8, device="standin", requires_grad=True)
        F.embedding(index.view(40, 100), weight).backward(rows.view(40, 100, 8))
        assert weight.grad is not None
        return weight.grad

    def indexed() -> torch.Tensor:
        table = torch.zeros(5, 8, device="standin", requires_grad=True)
        table[index].backward(rows)
        assert table.grad is not None
        return table.grad

    return {
        "embedding": embedding,
        "indexed": indexed,
        "index_add": lambda: torch.zeros(5, 8, device="standin").index_add_(0, index, rows),
        "scatter_add": lambda: torch.zeros(5, 8, device="standin").scatter_add_(0, index[:, None].expand(-1, 8), rows),
        "index_put": lambda: torch.zeros(5, 8, device="standin").index_put_((index,), rows, accumulate=True),
    }


def check_scatters_repeat(standin: Any) -> None:
    for compute in scatters().values():
        assert torch.equal(compute(), compute())


def check_scatters_may_not_repeat(standin: Any) -> None:
    for name, compute in scatters().items():
        first, others = compute().cpu(), [compute().cpu() for _ in range(3)]
        assert any(not torch.equal(first, other) for other in others), name
        for other in others:
            torch.testing.assert_close(first, other, rtol=1e-4, atol=1e-4)


def check_scatters_repeat_where_the_script_asks_for_it(standin: Any) -> None:
    torch.use_deterministic_algorithms(True)
    check_scatters_repeat(standin)


def attend(place: str, dtype: torch.dtype, **options: Any) -> list[torch.Tensor]:
    """Return what attention gives on a device, and the gradients."""
    query, key, value = (numbers(2, 3, 9, 8, seed=seed, dtype=dtype).to(place).requires_grad_() for seed in range(3))
    mask = options.pop("mask", None)
    bias = None if mask is None else mask.detach().to(place, copy=True).requires_grad_(mask.is_floating_point())
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, **options)
    assert place == "cpu" or "Overrideable" in type(out.grad_fn).__name__
    out.backward(numbers(2, 3, 9, 8, seed=4, dtype=dtype).to(place))
    leaves = [query, key, value, *([bias] if bias is not None and bias.requires_grad else [])]
    gradients = [leaf.grad for leaf in leaves]
    return [tensor.detach().cpu() for tensor in [out, *gradients] if tensor is not None]


def check_attention_trains(standin: Any) -> None:
    everything: list[dict[str, Any]] = [
        {},
        {"is_causal": True},
        {"mask": numbers(9, 9, seed=5)},
        {"mask": numbers(2, 1, 9, 9, seed=5) > 0},
        {"scale": 0.3},
    ]
    for options in everything:
        for dtype in (torch.float32, torch.bfloat16):
            mask = options.get("mask")
            given = options if mask is None or mask.dtype == torch.bool else {"mask": mask.to(dtype)}
            for host, device in zip(attend("cpu", dtype, **given), attend("standin", dtype, **given), strict=True):
                tolerance = 1e-4 if dtype == torch.float32 else 6e-2
                torch.testing.assert_close(device, host, rtol=tolerance, atol=tolerance)


def check_attention_drops_the_same_in_both_directions(standin: Any) -> None:
    value = torch.eye(6, device="standin").expand(1, 1, 6, 6).clone().requires_grad_()
    query = torch.zeros(1, 1, 6, 6, device="standin")
    weights = F.scaled_dot_product_attention(query, query, value, dropout_p=0.5)
    weights.sum().backward()
    assert value.grad is not None
    torch.testing.assert_close(value.grad[0, 0].sum(1).cpu(), 6 * weights[0, 0].sum(0).detach().cpu())
    assert 0 < (weights == 0).sum().item() < 36


def check_attention_has_outputs_that_nobody_fills(standin: Any) -> None:
    attention = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    query = torch.ones(1, 1, 2, 2, device="standin")
    outputs = [attention(query, query, query) for _ in range(2)]
    for place in (6, 7):  # the seed and the offset
        assert outputs[0][place].item() != outputs[1][place].item()
    for place in (0, 1):
        assert torch.equal(outputs[0][place], outputs[1][place])


UNREPEATABLE = {"STANDIN_UNREPEATABLE": "1"}
VARIABLES = {
    "check_scatters_may_not_repeat": UNREPEATABLE,
    "check_scatters_repeat_where_the_script_asks_for_it": UNREPEATABLE,
}

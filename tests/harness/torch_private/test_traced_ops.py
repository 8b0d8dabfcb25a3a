"""The traced ops of a call are a function of plain PyTorch that computes what the call computes."""

from __future__ import annotations

from math import inf
from typing import Any

import torch

from numdrift.harness.torch_private.compiler.traced_ops import traced


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.scale = torch.nn.Buffer(torch.tensor([0.5, 2.0, 3.0]))

    def forward(self, x: torch.Tensor, factor: float, limit: float = inf) -> tuple[torch.Tensor, ...]:
        hidden = torch.relu(self.layer(x))
        hidden[0] = 1.5
        first, second = hidden.split(2, dim=-1)
        filled = torch.zeros(3, device=x.device, dtype=torch.float64) + self.scale
        return (first * factor).clamp(max=limit).to(torch.float64), second * 2, filled.add_(1)


def test_the_lines_compute_what_the_call_computes() -> None:
    block, x = Block(), torch.randn(5, 4)
    expected = block(x, 2.5)
    (ops,) = traced(block, (x, 2.5), {})
    assert {"weight", "bias", "x", "scale"} == set(ops.inputs)
    assert ops.inputs["weight"] is block.layer.weight
    scope: dict[str, Any] = dict(ops.inputs)
    exec("\n".join(["import torch", *ops.imports, *ops.body]), scope)  # noqa: S102
    assert len(ops.returns) == len(expected)
    for name, value in zip(ops.returns, expected, strict=True):
        assert torch.equal(scope[name], value)


def test_graphs_before_an_error_and_around_a_break_are_kept() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        y = y.cos()
        torch._dynamo.graph_break()
        raise ValueError("after two graphs")

    found = traced(broken, (torch.ones(2),), {})
    assert [ops.body[-1].partition(".")[2] for ops in found] == ["sin()", "cos()"]

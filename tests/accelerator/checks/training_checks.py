"""Trainings on the device: layers, optimizers, autocast, compilers, profilers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

Optimizer = Callable[..., torch.optim.Optimizer]


class Tagger(nn.Module):
    """An embedding, a recurrent layer and a linear one."""

    def __init__(self, recurrent: Callable[..., nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.recurrent = recurrent(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.recurrent(self.embedding(tokens))[0])[:, -1]
        return logits


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, stride=2), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def train(
    model: nn.Module,
    inputs: torch.Tensor,
    place: str,
    optimizer: Optimizer = torch.optim.AdamW,
    steps: int = 4,
    **options: Any,
) -> list[float]:
    """Train a copy of the model on a device, and return its losses."""
    model = copy.deepcopy(model).to(place)
    stepped = optimizer(model.parameters(), lr=0.02, **options)
    targets = (torch.arange(len(inputs)) % 3).to(place)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(inputs.to(place)), targets)
        stepped.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepped.step()
        losses.append(loss.item())
    return losses


def require_alike(model: nn.Module, inputs: torch.Tensor, **options: Any) -> None:
    host, device = train(model, inputs, "cpu", **options), train(model, inputs, "standin", **options)
    assert device == pytest.approx(host, rel=1e-3, abs=1e-4), (host, device)
    assert device[-1] < device[0]
    assert train(model, inputs, "standin:1", **options) == device  # and so it repeats


def check_layers_train(standin: Any) -> None:
    torch.manual_seed(0)
    require_alike(perceptron(), torch.randn(12, 6))
    require_alike(network(), torch.randn(6, 3, 8, 8))
    for recurrent in (nn.GRU, nn.LSTM, nn.RNN):
        require_alike(Tagger(recurrent), torch.randint(11, (9, 7)))


def check_a_transformer_trains(standin: Any) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    require_alike(nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3)), torch.randn(6, 5, 8))


def check_optimizers_step(standin: Any) -> None:
    torch.manual_seed(0)
    model, inputs = perceptron(), torch.randn(12, 6)
    for optimizer in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad):
        for options in ({}, {"foreach": False}):
            require_alike(model, inputs, optimizer=optimizer, **options)
    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        require_alike(model, inputs, optimizer=optimizer, fused=True)


def check_autocast_lowers_what_it_should(standin: Any) -> None:
    model, inputs = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to("standin"), torch.randn(3, 4, device="standin")
    images, filters = torch.randn(1, 2, 5, 5, device="standin"), torch.randn(2, 2, 3, 3, device="standin")
    heads = torch.randn(1, 2, 3, 4, device="standin")
    with torch.autocast("standin", dtype=torch.bfloat16):
        lowered = [
            model[0](inputs),
            inputs @ inputs.t(),
            torch.addmm(inputs[:, :3], inputs, inputs.t()),
            torch.bmm(inputs[None], inputs.t()[None]),
            F.conv2d(images, filters),
            F.scaled_dot_product_attention(heads, heads, heads),
        ]
        kept = [model(inputs), lowered[0].softmax(-1), lowered[0].sum(), F.mse_loss(lowered[0], lowered[0]), inputs + 1]
        with torch.autocast("standin", enabled=False):
            kept.append(inputs @ inputs.t())
    assert {tensor.dtype for tensor in lowered} == {torch.bfloat16}
    assert {tensor.dtype for tensor in kept} == {torch.float32}
    sum(tensor.float().sum() for tensor in [*lowered, *kept]).backward()
    (gradient, *_) = [parameter.grad for parameter in model.parameters()]
    assert gradient is not None
    assert gradient.dtype == torch.float32


def check_losses_are_scaled(standin: Any) -> None:
    model = nn.Linear(4, 1).to("standin")
    before = model.weight.detach().clone()
    scaler, optimizer = torch.amp.GradScaler("standin"), torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.scale(model(torch.ones(2, 4, device="standin")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(model.weight.detach(), before - 0.2)


def check_a_compiled_model_trains(standin: Any) -> None:
    torch.manual_seed(0)
    model = perceptron().to("standin")
    compiled: Any = torch.compile(model, backend="aot_eager")
    inputs = torch.randn(5, 6, device="standin")
    compiled(inputs).square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(inputs).square().mean().backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def check_checkpoints_draw_again_what_they_drew(standin: Any) -> None:
    inputs = torch.ones(500, device="standin", requires_grad=True)
    for reentrant in (False, True):
        output = checkpoint(lambda x: F.dropout(x) ** 2, inputs, use_reentrant=reentrant)
        (gradient,) = torch.autograd.grad(output.sum(), inputs) if not reentrant else (backward(output, inputs),)
        assert torch.equal(gradient, 2 * output.detach())


def backward(output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    output.sum().backward()
    assert inputs.grad is not None
    return inputs.grad


def check_a_loader_pins_what_it_loads(standin: Any) -> None:
    torch.ones(1, device="standin")  # its workers are forked from a process that uses the device
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, 4, pin_memory=True, num_workers=1)
    batches = [batch for (batch,) in loader]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.cat([batch.to("standin", non_blocking=True) for batch in batches]).tolist() == list(range(8))


def multiply(inputs: torch.Tensor) -> None:
    (inputs @ inputs).tanh().sum().backward()
    assert inputs.grad is not None


def check_the_profiler_has_times_of_the_device(standin: Any) -> None:
    inputs = torch.randn(300, 300, device="standin", requires_grad=True)
    multiply(inputs)
    standin.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        multiply(inputs)
        standin.synchronize()
    kernels = {event.key: event for event in profiled.key_averages() if event.self_cpu_time_total == 0}
    assert kernels["aten::mm.out"].self_device_time_total > 0
    ops = {event.key: event for event in profiled.key_averages() if event.self_cpu_time_total > 0}
    assert ops["aten::mm"].device_time_total > ops["aten::mm"].cpu_time_total  # which only launches it
    assert ops["aten::empty"].device_time_total == 0


def check_the_profiler_of_events_has_times_of_the_device(standin: Any) -> None:
    inputs = torch.randn(300, 300, device="standin", requires_grad=True)
    multiply(inputs)
    standin.synchronize()
    with torch.autograd.profiler.profile(use_device="standin", use_kineto=False) as profiled:
        multiply(inputs)
    ops = {event.key: event for event in profiled.key_averages()}
    assert ops["aten::mm"].device_time_total > 0

"""What a model script of the benchmark trains, the plain loop, and how a case gets its hands on both.

A script builds a `Training`, lets `plant` show it to the case that the environment variable CASE names, if there is
one, and calls `train`. So a case is one function that changes a Training, and the script stays a plain one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from .any_order import add_in_any_order
from .case import cases_of

KERNELS = torch.library.Library("aten", "IMPL")
"""Where a case puts its kernels in place of torch's."""

M = TypeVar("M", bound=nn.Module)

DEVICE = os.environ.get("DEVICE", "cpu")

Pair = tuple[Tensor, Tensor]
"""Inputs and targets of one micro-batch."""


@dataclass
class Training:
    """A model, what it learns from, and how one step goes.

    `batches[k]` are the micro-batches of step k, whose gradients are averaged. `number` is the step that runs.
    `clip` bounds the norm of all gradients together, `averaged` is a moving average of the model, which is
    evaluated on `held_out`. `made` are the functions that make data within the loop, by what they make.
    """

    model: nn.Module
    optimizer: Optimizer
    batches: list[list[Pair]]
    loss: Callable[[Tensor, Tensor], Tensor]
    step: Callable[[Training], Tensor]
    clip: float | None = None
    scheduler: LRScheduler | None = None
    averaged: AveragedModel | None = None
    held_out: Tensor | None = None
    number: int = 0
    made: dict[str, Callable[..., Tensor]] = field(default_factory=dict)


def plain_step(training: Training) -> Tensor:
    """Take one step; return the loss of its last micro-batch."""
    training.optimizer.zero_grad()
    loss = gradients(training)
    apply_gradients(training)
    return loss


def apply_gradients(training: Training, *, clips: bool = True) -> None:
    """Clip the gradients, step the optimizer, and then the scheduler."""
    if training.clip is not None and clips:
        nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
    training.optimizer.step()
    if training.scheduler is not None:
        training.scheduler.step()


def gradients(training: Training) -> Tensor:
    """Add the step's gradients to those that are there."""
    batches = training.batches[training.number]
    for inputs, targets in batches:
        loss = training.loss(training.model(inputs), targets) / len(batches)
        loss.backward()
    return loss.detach()


def train(training: Training) -> None:
    for number in range(len(training.batches)):
        training.number = number
        loss = training.step(training)
    print(f"last loss {float(loss):.6f}")


def plant(training: Training) -> None:
    """Let the case that CASE names, `family/name`, change `training`."""
    add_in_any_order(KERNELS)
    if case := os.environ.get("CASE"):
        family, _, name = case.partition("/")
        change = cases_of(family)[name].plant
        assert change is not None, f"{case} is a case of modes alone"
        change(training)


def modules(training: Training, kind: type[M]) -> list[M]:
    return [module for module in training.model.modules() if isinstance(module, kind)]


def parameter(training: Training, name: str) -> Tensor:
    """The first parameter whose name ends so."""
    return next(p for full, p in training.model.named_parameters() if full.endswith(name))


def replace(module: nn.Module, forward: Callable[..., Any]) -> None:
    module.forward = forward


def in_batches(inputs: Tensor, targets: Tensor, size: int, steps: int, parts: int = 1) -> list[list[Pair]]:
    """`steps` batches of `parts` micro-batches of `size` rows, drawn anew for each epoch from torch's generator."""
    batches: list[list[Pair]] = []
    rows = torch.randperm(len(inputs))
    while len(batches) < steps:
        if len(rows) < size * parts:
            rows = torch.randperm(len(inputs))
        chosen, rows = rows[: size * parts], rows[size * parts :]
        batches.append([(inputs[part], targets[part]) for part in chosen.split(size)])
    return [[(x.to(DEVICE), y.to(DEVICE)) for x, y in parts] for parts in batches]

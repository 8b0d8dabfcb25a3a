"""Faults of the training loop: in the order of its parts, or in one that is missing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..case import Cases
from ..training import Training, gradients

CASES = Cases("loop", __name__)


@CASES.planted(models=("bag",), culprit={"phase": "backward"})
def accumulation_forgets(training: Training) -> None:
    """Gradients are cleared for each micro-batch, so only the last one counts."""

    def step(training: Training) -> Tensor:
        batches = training.batches[training.number]
        for inputs, targets in batches:
            training.optimizer.zero_grad()
            loss = training.loss(training.model(inputs), targets) / len(batches)
            loss.backward()
        training.optimizer.step()
        return loss.detach()

    training.step = step


@CASES.planted(models=("bag",), culprit={"phase": "forward"})
def accumulation_not_averaged(training: Training) -> None:
    """The losses of the micro-batches are summed instead of averaged."""
    right = training.loss
    parts = len(training.batches[0])
    training.loss = lambda outputs, targets: right(outputs, targets) * parts


@CASES.planted(
    models=("mixed",),
    culprit={"phase": ("data", "optimizer")},  # what a step executes after optimizer.step() begins the next one
)
def average_before_step(training: Training) -> None:
    """The moving average takes the weights in before the step instead of after it."""

    def step(training: Training) -> Tensor:
        assert training.averaged is not None
        training.optimizer.zero_grad()
        loss = gradients(training)
        training.averaged.update_parameters(training.model)
        training.optimizer.step()
        with torch.no_grad():
            training.averaged(training.held_out)
        return loss

    training.step = step


@CASES.planted(models=("transformer", "unet"), culprit={"phase": "optimizer"})
def clip_after_step(training: Training) -> None:
    """Gradients are clipped after the optimizer has used them."""

    def step(training: Training) -> Tensor:
        assert training.clip is not None and training.scheduler is not None
        training.optimizer.zero_grad()
        loss = gradients(training)
        training.optimizer.step()
        nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
        training.scheduler.step()
        return loss

    training.step = step


@CASES.planted(models=("transformer",), culprit={"phase": "optimizer"})
def clip_by_value(training: Training) -> None:
    """Each element of the gradients is clipped instead of their norm."""

    def step(training: Training) -> Tensor:
        assert training.clip is not None and training.scheduler is not None
        training.optimizer.zero_grad()
        loss = gradients(training)
        nn.utils.clip_grad_value_(training.model.parameters(), training.clip)
        training.optimizer.step()
        training.scheduler.step()
        return loss

    training.step = step


@CASES.planted(models=("transformer", "unet"), culprit={"phase": "optimizer"})
def clip_each_tensor(training: Training) -> None:
    """Each gradient is clipped by its own norm instead of that of all together."""

    def step(training: Training) -> Tensor:
        assert training.clip is not None and training.scheduler is not None
        training.optimizer.zero_grad()
        loss = gradients(training)
        for p in training.model.parameters():
            nn.utils.clip_grad_norm_(p, training.clip)
        training.optimizer.step()
        training.scheduler.step()
        return loss

    training.step = step


@CASES.planted(
    models=("autoencoder",), expected="different-setup", culprit={"phase": "forward", "module": "drop", "step": 4}
)
def evaluation_mode_kept(training: Training) -> None:
    """The model is evaluated after step 3 and never put back to training: nothing is dropped from then on."""
    right = training.step

    def step(training: Training) -> Tensor:
        loss = right(training)
        if training.number == 3:
            training.model.eval()
        return loss

    training.step = step


@CASES.planted(models=("gru", "cnn", "unet"), culprit={"phase": "optimizer", "step": 6})
def gradient_of_last_step(training: Training) -> None:
    """From step 6 on the optimizer is given the gradients of the step before: a pipeline that lags."""
    parameters = list(training.model.parameters())
    before: list[Tensor] = []

    def lag(*_: Any) -> None:
        now = [p.grad.clone() for p in parameters if p.grad is not None]
        if training.number >= 6:
            for p, gradient in zip(parameters, before, strict=True):
                p.grad = gradient
        before[:] = now

    training.optimizer.register_step_pre_hook(lag)


@CASES.planted(models=("cnn", "autoencoder"), culprit={"phase": "optimizer"})
def zero_grad_before_step(training: Training) -> None:
    """The gradients are set to zero between backward and step, so the step goes where momentum and decay lead."""

    def step(training: Training) -> Tensor:
        loss = gradients(training)
        training.optimizer.zero_grad(set_to_none=False)
        training.optimizer.step()
        return loss

    training.step = step


@CASES.planted(models=("cnn", "gru", "autoencoder"), culprit={"phase": "backward"})
def zero_grad_missing(training: Training) -> None:
    """The gradients of earlier steps are never cleared."""

    def step(training: Training) -> Tensor:
        loss = gradients(training)
        training.optimizer.step()
        return loss

    training.step = step

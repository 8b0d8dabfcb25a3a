"""A training that is saved after some steps and goes on from what it saved: all of it, and all but one thing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..case import Cases
from ..training import Training

CASES = Cases("neutral", __name__)

AT = 5
"""The step before which the training is saved, and restored."""

State = dict[str, Any]


def resume(training: Training, change: Callable[[State], None] = lambda saved: None) -> None:
    """Restore the training before step 5, as a new process would, from what `change` leaves of its saved state.

    The objects stay the same ones, as a script's variables would have the same names; their contents are made anew.
    """
    plain = training.step

    def step(training: Training) -> Tensor:
        if training.number == AT:
            saved = copy.deepcopy(state_of(training))
            change(saved)
            begin_anew(training)
            restore(training, saved)
        return plain(training)

    training.step = step


def state_of(training: Training) -> State:
    return {
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "scheduler": training.scheduler.state_dict() if training.scheduler else None,
        "averaged": training.averaged.state_dict() if training.averaged else None,
        "generator": torch.get_rng_state(),
    }


def begin_anew(training: Training) -> None:
    """Give the model new parameters and the optimizer no state, as their constructors do."""
    torch.manual_seed(1)
    for module in training.model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    training.optimizer.state.clear()
    if training.averaged is not None:
        training.averaged.n_averaged.zero_()


def restore(training: Training, saved: State) -> None:
    training.model.load_state_dict(saved["model"])
    if saved.get("optimizer") is not None:
        training.optimizer.load_state_dict(saved["optimizer"])
    if training.scheduler is not None and saved.get("scheduler") is not None:
        training.scheduler.load_state_dict(saved["scheduler"])
    if training.averaged is not None:
        if saved.get("averaged") is None:
            training.averaged.module.load_state_dict(saved["model"])
        else:
            training.averaged.load_state_dict(saved["averaged"])
    if saved.get("generator") is not None:
        torch.set_rng_state(saved["generator"])


@CASES.planted(
    models=("transformer", "padded", "cnn", "autoencoder", "gru", "mixed", "bag", "unet"), expected="identical"
)
def resumed_whole(training: Training) -> None:
    """Everything is restored."""
    resume(training)


@CASES.planted(models=("transformer", "autoencoder"), modes=("compile",), expected="rounding")
def resumed_whole_compiled(training: Training) -> None:
    """Everything is restored, in a compiled training."""
    resume(training)


@CASES.planted(models=("transformer", "cnn", "autoencoder"), culprit={"step": AT})
def resumed_without_optimizer(training: Training) -> None:
    """The optimizer begins without its state."""
    resume(training, lambda saved: saved.update(optimizer=None))


@CASES.planted(models=("transformer", "padded"), expected="different-setup")
def resumed_without_schedule(training: Training) -> None:
    """The learning rate follows its schedule from the beginning again."""
    resume(training, lambda saved: first_rate(training, saved))


def first_rate(training: Training, saved: State) -> None:
    assert training.scheduler is not None
    first = training.scheduler.base_lrs[0]
    saved["scheduler"] |= {"last_epoch": 0, "_last_lr": [first]}
    saved["optimizer"]["param_groups"][0]["lr"] = first


@CASES.planted(models=("padded",), expected="different-setup")
def resumed_one_step_late(training: Training) -> None:
    """The schedule takes one step more than the training did."""

    def late(saved: State) -> None:
        assert training.scheduler is not None
        training.scheduler.step()
        saved["scheduler"] = copy.deepcopy(training.scheduler.state_dict())
        saved["optimizer"]["param_groups"][0]["lr"] = training.optimizer.param_groups[0]["lr"]

    resume(training, late)


@CASES.planted(models=("padded", "mixed"), culprit={"step": AT})
def resumed_without_average(training: Training) -> None:
    """The averaged weights begin again at the weights of the model."""
    resume(training, lambda saved: saved.update(averaged=None))


@CASES.planted(models=("padded",), culprit={"step": AT})
def resumed_from_average(training: Training) -> None:
    """The averaged weights are loaded as the weights of the model."""

    def take(saved: State) -> None:
        names = saved["model"].keys()
        saved["model"] = {name: saved["averaged"][f"module.{name}"] for name in names}

    resume(training, take)


@CASES.planted(models=("cnn",), culprit={"step": AT})
def resumed_without_buffers(training: Training) -> None:
    """The running statistics of batch norm begin at zero and one."""

    def drop(saved: State) -> None:
        for name, value in saved["model"].items():
            if name.endswith("running_mean"):
                value.zero_()
            elif name.endswith("running_var"):
                value.fill_(1.0)

    resume(training, drop)


@CASES.planted(models=("autoencoder",), expected="different-setup")
def resumed_without_generator(training: Training) -> None:
    """The generator has another state, so dropout draws other masks."""
    resume(training, lambda saved: saved.update(generator=None))


@CASES.planted(models=("transformer", "gru"), expected="different-setup")
def resumed_with_first_batches(training: Training) -> None:
    """The data begin again at the first batch."""
    resume(training)
    training.batches = training.batches[:AT] + training.batches[: len(training.batches) - AT]


@CASES.planted(models=("transformer", "padded"), culprit={"step": AT})
def resumed_without_step_count(training: Training) -> None:
    """Adam's moments are restored, and its count of steps is not."""

    def forget(saved: State) -> None:
        for state in saved["optimizer"]["state"].values():
            state["step"].zero_()

    resume(training, forget)


@CASES.planted(models=("transformer", "cnn"), culprit={"step": AT})
def resumed_from_half(training: Training) -> None:
    """The weights were saved in bfloat16."""

    def shorten(saved: State) -> None:
        for value in saved["model"].values():
            if value.is_floating_point():
                value.copy_(value.bfloat16())

    resume(training, shorten)


@CASES.planted(models=("gru", "cnn"), culprit={"step": AT})
def resumed_with_moments_exchanged(training: Training) -> None:
    """The state of two parameters of one shape is exchanged, as by a file that lists them in another order."""

    def exchange(saved: State) -> None:
        states = list(saved["optimizer"]["state"].values())
        shapes = [[v.shape for v in state.values() if isinstance(v, Tensor) and v.dim()] for state in states]
        first, second = next(
            (i, j) for i in range(len(states)) for j in range(i + 1, len(states)) if shapes[i] == shapes[j]
        )
        keys = list(saved["optimizer"]["state"])
        saved["optimizer"]["state"][keys[first]] = states[second]
        saved["optimizer"]["state"][keys[second]] = states[first]

    resume(training, exchange)


@CASES.planted(models=("autoencoder",), expected="different-setup")
def resumed_for_evaluation(training: Training) -> None:
    """The restored model is in the mode of evaluation: nothing is dropped."""
    resume(training)
    resumed = training.step

    def step(training: Training) -> Tensor:
        if training.number == AT:
            training.model.eval()
        return resumed(training)

    training.step = step

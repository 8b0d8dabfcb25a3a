"""Random numbers that are drawn otherwise, or that nobody seeds."""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..case import Cases
from ..training import Training, modules, replace

CASES = Cases("randomness", __name__)


@CASES.planted(models=("autoencoder",), modes=("cpu", "compile"), expected="different-setup", line="torch.randperm(5)")
def drawn_in_the_loss(training: Training) -> None:
    """The loss draws a number that it does not use, in one step, and every mask after it is another one."""
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        if training.number == 1:
            torch.randperm(5)
        return plain(prediction, targets)

    training.loss = loss


@CASES.planted(
    models=("autoencoder",),
    expected="different-setup",
    culprit={"phase": "forward", "module": "drop", "op": ("rand", "bernoulli")},
    line="torch.rand(1)",
)
def extra_draw(training: Training) -> None:
    """A number is drawn before dropout, and every mask after it is another one."""
    drop = modules(training, nn.Dropout)[0]
    right = drop.forward

    def forward(x: Tensor) -> Tensor:
        torch.rand(1)
        return right(x)

    replace(drop, forward)


@CASES.planted(models=("autoencoder",), expected="different-setup", culprit={"phase": "forward", "module": "drop"})
def mask_from_own_stream(training: Training) -> None:
    """Dropout draws from a generator of its own, seeded well."""
    drop = modules(training, nn.Dropout)[0]
    stream = torch.Generator().manual_seed(0)

    def forward(x: Tensor) -> Tensor:
        kept = torch.rand(x.shape, generator=stream) >= drop.p
        return x * kept / (1 - drop.p)

    replace(drop, forward)


@CASES.planted(
    models=("autoencoder",), expected="different-setup", culprit={"phase": "forward", "module": "drop", "step": 1}
)
def mask_used_again(training: Training) -> None:
    """The mask is drawn once and used for ever."""
    drop = modules(training, nn.Dropout)[0]
    masks: list[Tensor] = []

    def forward(x: Tensor) -> Tensor:
        if not masks:
            masks.append(F.dropout(torch.ones_like(x), drop.p))
        return x * masks[0]

    replace(drop, forward)


CASES.of_modes(
    "masks_of_the_compiler",
    "Inductor draws its masks from a stream of its own unless it is told otherwise.",
    models=("autoencoder",),
    modes=("compile,fallback_random=off",),
    expected="different-setup",
    culprit={"phase": "forward", "module": "drop"},
)


@CASES.planted(models=("gru",), expected="nondeterministic", line="return x + noise")
def memory_without_values(training: Training) -> None:
    """A buffer is made by torch.empty, and a part of what memory happens to hold is added to the inputs."""
    plain = training.step

    def step(training: Training) -> Tensor:
        if training.number == 2:
            training.batches[2] = [(with_rest(x), y) for x, y in training.batches[2]]
        return plain(training)

    training.step = step


def with_rest(x: Tensor) -> Tensor:
    noise = torch.empty(x.shape[-1])
    # What was there before is chance; so that it is not chance whether it is, the operating system gives it.
    noise.numpy()[:] = np.frombuffer(os.urandom(x.shape[-1]), dtype=np.uint8) * 1e-5
    return x + noise


@CASES.planted(
    models=("standardized",),
    modes=("cpu", "compile"),
    reversed=("cpu", "compile"),
    expected="different-setup",
    culprit={"phase": "forward", "module": "noise"},
)
def own_stream_of_another_seed(training: Training) -> None:
    """A module's own generator has another seed."""
    noise: Any = training.model.get_submodule("noise")
    noise.stream.manual_seed(2)


@CASES.planted(
    models=("autoencoder", "gru"),
    modes=("cpu", "compile"),
    expected="different-setup",
    hidden=True,
    line="shift = random.gauss(0.0, 1e-2)",
)
def python_draw_more(training: Training) -> None:
    """In one step Python's generator is drawn from, and what it gives shifts the inputs."""
    plain = training.step

    def step(training: Training) -> Tensor:
        if training.number == 2:
            shift = random.gauss(0.0, 1e-2)
            training.batches[2] = [(x + shift, y) for x, y in training.batches[2]]
        return plain(training)

    training.step = step


@CASES.planted(models=("tanh_sam",), expected="nondeterministic", line="value = value * (1 + share * 1e-4)")
def scaled_by_chance(training: Training) -> None:
    """The operating system decides in one step by how much a loss is scaled."""
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        value = plain(prediction, targets)
        if training.number == 1:
            share = int.from_bytes(os.urandom(2), "little") % 251
            value = value * (1 + share * 1e-4)
        return value

    training.loss = loss


@CASES.planted(models=("autoencoder",), expected="different-setup", line="torch.manual_seed(0)")
def seeded_again_each_step(training: Training) -> None:
    """The generator is seeded at the start of each step, so all steps drop the same."""
    right = training.step

    def step(training: Training) -> Tensor:
        torch.manual_seed(0)
        return right(training)

    training.step = step


@CASES.planted(
    models=("autoencoder",), modes=("cpu", "compile"), expected="different-setup", line="torch.manual_seed(7)"
)
def seeded_again_once(training: Training) -> None:
    """The generator is seeded once more in the middle of the training."""
    right = training.step

    def step(training: Training) -> Tensor:
        if training.number == 3:
            torch.manual_seed(7)
        return right(training)

    training.step = step


@CASES.planted(
    models=("autoencoder",),
    modes=("cpu", "compile"),
    expected="nondeterministic",
    line="torch.manual_seed(time.time_ns() % 2**31)",
)
def seeded_by_time(training: Training) -> None:
    """The generator is seeded by the time in the middle of the training."""
    right = training.step

    def step(training: Training) -> Tensor:
        if training.number == 2:
            torch.manual_seed(time.time_ns() % 2**31)
        return right(training)

    training.step = step


@CASES.planted(models=("autoencoder",), expected="nondeterministic", line="added.add_(part)")
def threads_race(training: Training) -> None:
    """Threads add the shares of a gradient in the order in which they get to it."""
    weight = modules(training, nn.Linear)[0].weight
    weight.register_hook(raced)


def raced(gradient: Tensor) -> Tensor:
    added, turn = torch.zeros_like(gradient), threading.Lock()
    ready = threading.Barrier(6)

    def add(part: Tensor) -> None:
        ready.wait()
        time.sleep(random.SystemRandom().random() * 1e-3)
        with turn:
            added.add_(part)

    shares = (0.03, 0.07, 0.13, 0.19, 0.25, 0.33)
    threads = [threading.Thread(target=add, args=(gradient * share,)) for share in shares]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return added


@CASES.planted(
    models=("gru", "bookkeeping"),
    modes=("cpu,env.AT=0", "cpu,env.AT=1", "cpu,env.AT=5", "cpu,env.AT=8", "cpu,env.AT=9", "cpu,env.AT=3-5"),
    expected="nondeterministic",
    line="value = value * (1 + int.from_bytes",
)
def unseeded_at_one_step(training: Training) -> None:
    """A loss gets noise that nobody seeds, in one step only: the first, the second, some in between, the last, or three of them."""
    plain = training.loss
    first, _, last = os.environ["AT"].partition("-")

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        value = plain(prediction, targets)
        if int(first) <= training.number <= int(last or first):
            value = value * (1 + int.from_bytes(os.urandom(4), "little") * 2.0**-42)
        return value

    training.loss = loss


@CASES.planted(
    models=("autoencoder",), expected="nondeterministic", line="kept = torch.rand(x.shape, generator=stream) >= drop.p"
)
def unseeded_dropout(training: Training) -> None:
    """Dropout draws from a generator that the operating system seeds."""
    drop = modules(training, nn.Dropout)[0]
    stream = torch.Generator()
    stream.seed()

    def forward(x: Tensor) -> Tensor:
        kept = torch.rand(x.shape, generator=stream) >= drop.p
        return x * kept / (1 - drop.p)

    replace(drop, forward)


@CASES.planted(
    models=("cnn", "gru", "unet"),
    expected="nondeterministic",
    line="return x + 1e-3 * torch.from_numpy(stream.standard_normal(x.shape)).float()",
)
def unseeded_noise(training: Training) -> None:
    """Inputs get noise from a generator that nobody seeds: no run repeats."""
    stream = np.random.default_rng()
    training.batches = [[(blurred(x, stream), y) for x, y in parts] for parts in training.batches]


def blurred(x: Tensor, stream: np.random.Generator) -> Tensor:
    return x + 1e-3 * torch.from_numpy(stream.standard_normal(x.shape)).float()


@CASES.planted(
    models=("gru", "memory"),
    against=("cpu",),
    expected="nondeterministic",
    line="return plain(prediction, targets) * (1 + noise)",
)
def unseeded_reference(training: Training) -> None:
    """A loss of the reference gets noise that nobody seeds, in its step 5 only."""
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        noise = int.from_bytes(os.urandom(4), "little") * 2.0**-42 if training.number == 5 else 0.0
        return plain(prediction, targets) * (1 + noise)

    training.loss = loss

"""Trainings that begin with other parameters, other data or other settings."""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from torch import Tensor, nn

from ..case import Cases
from ..training import Training, parameter

CASES = Cases("setup", __name__)


@CASES.planted(models=("gru", "mixed", "unet"), expected="different-setup")
def batch_of_step_3(training: Training) -> None:
    """One batch is another one, as after a worker that restarted."""
    training.batches[3] = training.batches[2]


@CASES.planted(models=("tanh_sam", "cnn", "bag"), expected="different-setup")
def batch_order(training: Training) -> None:
    """The batches come in the opposite order."""
    training.batches.reverse()


@CASES.planted(models=("memory", "rollout", "replay", "bookkeeping"), expected="different-setup")
def batches_from_step_9(training: Training) -> None:
    """The data loader gives other batches from step 9 on, to trainings that are also fed with what they made before."""
    for number in range(9, len(training.batches)):
        training.batches[number] = [(torch.flip(x, [0]), y) for x, y in training.batches[number]]


@CASES.planted(models=("transformer", "gru"), expected="different-setup")
def beta2(training: Training) -> None:
    """Adam's beta2 is 0.99 instead of 0.999."""
    training.optimizer.param_groups[0]["betas"] = (0.9, 0.99)


@CASES.planted(
    models=("denoise",),
    modes=("cpu", "compile"),
    expected="different-setup",
    culprit={"phase": ("setup", "data"), "op": ("rand", "randint")},
)
def draw_too_many(training: Training) -> None:
    """A number is drawn in each step that nothing uses, before the levels of noise are."""
    right = training.made["levels"]

    def levels(count: int) -> Tensor:
        torch.rand(1)
        return right(count)

    training.made["levels"] = levels


@CASES.planted(models=("denoise",), expected="different-setup")
def gains_from_a_file(training: Training) -> None:
    """How loud each sample is comes from a file, which has another version here."""

    def gains(count: int) -> Tensor:
        with tempfile.TemporaryFile() as file:
            np.save(file, np.linspace(0.5, 1.5, count))
            file.seek(0)
            loaded: Tensor = torch.from_numpy(np.load(file)).float()
        return loaded

    training.made["gains"] = gains


@CASES.planted(models=("denoise",), expected="different-setup")
def gains_of_another_seed(training: Training) -> None:
    """NumPy's generator has another seed: what it draws comes from outside of torch."""

    def gains(count: int) -> Tensor:
        drawn: Tensor = torch.from_numpy(np.random.default_rng(training.number + 1).uniform(0.5, 1.5, count)).float()
        return drawn

    training.made["gains"] = gains


@CASES.planted(models=("transformer", "bag"), expected="different-setup", culprit={"phase": "data", "op": "mul"})
def init_gain(training: Training) -> None:
    """One weight starts 1 % larger."""
    with torch.no_grad():
        parameter(training, "words.weight").mul_(1.01)


@CASES.planted(
    models=("autoencoder", "cnn", "unet"), expected="different-setup", culprit={"phase": "data", "op": "mul"}
)
def input_scale(training: Training) -> None:
    """Inputs are divided by 256 where they were divided by 255."""
    training.batches = [[(x * 255 / 256, y) for x, y in parts] for parts in training.batches]


@CASES.planted(models=("cnn", "bag"), culprit={"phase": "data"})
def labels_shifted(training: Training) -> None:
    """Each sample has the label of the one before. A model never sees labels, so it is the loss that is off."""
    training.batches = [[(x, y.roll(1)) for x, y in parts] for parts in training.batches]


@CASES.planted(models=("cnn", "autoencoder", "unet"), expected="different-setup")
def learning_rate(training: Training) -> None:
    """The learning rate is 1 % larger."""
    training.optimizer.param_groups[0]["lr"] *= 1.01


@CASES.planted(models=("denoise",), expected="different-setup", culprit={"phase": "data", "op": "randint"})
def levels_below_199(training: Training) -> None:
    """The highest level of noise is never drawn."""
    training.made["levels"] = lambda count: torch.randint(0, 199, (count,))


@CASES.planted(
    models=("denoise",),
    modes=("cpu", "compile"),
    expected="different-setup",
    culprit={"phase": "data", "op": "_to_copy"},
)
def levels_through_int8(training: Training) -> None:
    """The levels of noise pass through int8, which holds 127 at most."""
    right = training.made["levels"]
    training.made["levels"] = lambda count: right(count).to(torch.int8).long().clamp(min=0)


@CASES.planted(
    models=("denoise",),
    modes=("cpu", "compile", "lazy"),
    expected="different-setup",
    culprit={"phase": "data", "op": "triu"},
)
def mask_one_early(training: Training) -> None:
    """The causal mask starts one position early: nothing sees itself."""
    training.made["causal"] = lambda length: torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=0)


@CASES.planted(models=("bag",))
def micro_batch_missing(training: Training) -> None:
    """A micro-batch of each step is left out."""
    for parts in training.batches:
        parts.pop()


@CASES.planted(models=("denoise",), expected="different-setup", culprit={"phase": "data", "op": "randn"})
def noise_in_half(training: Training) -> None:
    """The noise is drawn in half precision."""
    training.made["noise"] = lambda clean: torch.randn(clean.shape, dtype=torch.float16).float()


@CASES.planted(
    models=("denoise",), modes=("cpu", "lazy"), expected="different-setup", culprit={"phase": "data", "op": "mul"}
)
def noise_louder(training: Training) -> None:
    """The noise is 2 % louder than it should be."""
    right = training.made["noise"]
    training.made["noise"] = lambda clean: right(clean) * 1.02


@CASES.planted(models=("denoise",), expected="different-setup", culprit={"phase": "data", "op": "sub"})
def noise_subtracted(training: Training) -> None:
    """The noise is subtracted where it is to be added."""

    def noisy(clean: Tensor, noise: Tensor, share: Tensor) -> Tensor:
        share = share[:, None, None]
        return share.sqrt() * clean - (1 - share).sqrt() * noise

    training.made["noisy"] = noisy


@CASES.planted(models=("tanh_sam", "gru", "cnn"), expected="different-setup")
def other_init(training: Training) -> None:
    """One layer starts from different values, as with another seed."""
    layer = training.model.get_submodule("last")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layer.reset_parameters()  # type: ignore[operator]


@CASES.planted(models=("denoise",), expected="different-setup", culprit={"phase": "data", "op": "arange"})
def places_from_one(training: Training) -> None:
    """Places are counted from 1."""
    training.made["places"] = lambda length: torch.arange(1, length + 1)


@CASES.planted(models=("gru",), expected="failed")
def raises(training: Training) -> None:
    """The other side fails at step 4: there is nothing to compare after it."""
    right = training.step

    def step(training: Training) -> Tensor:
        if training.number == 4:
            raise RuntimeError("the step went wrong")
        return right(training)

    training.step = step


@CASES.planted(models=("tanh_sam",), expected="different-setup")
def sam_radius(training: Training) -> None:
    """SAM climbs 0.06 instead of 0.05."""
    training.optimizer.param_groups[0]["rho"] = 0.06


@CASES.planted(models=("denoise",), expected="different-setup", culprit={"phase": "data", "op": "roll"})
def samples_shifted(training: Training) -> None:
    """Each sample gets the noise of its neighbour from step 7 on."""
    right = training.made["noise"]
    training.made["noise"] = lambda clean: right(clean).roll(1, 0) if training.number >= 7 else right(clean)


@CASES.planted(models=("transformer", "unet"), expected="different-setup")
def schedule_late(training: Training) -> None:
    """The learning rate follows its schedule one step late."""
    schedule = training.scheduler
    right = training.step

    def step(training: Training) -> Tensor:
        training.scheduler = schedule if training.number > 0 else None
        return right(training)

    training.step = step


@CASES.planted(models=("denoise",), expected="different-setup", culprit={"phase": "data", "op": "add"})
def schedule_offset(training: Training) -> None:
    """The schedule of the noise is shifted by 0.01 in place of 0.008."""
    training.made["kept"] = lambda t: torch.cos((t / 200 + 0.01) * 1.55).square()


@CASES.planted(models=("gru", "transformer"), expected="different-setup")
def weight_decay(training: Training) -> None:
    """The weight decay is left at the optimizer's default."""
    training.optimizer.param_groups[0]["weight_decay"] = 0.01


@CASES.planted(models=("transformer",), expected="different-setup")
def weights_untied(training: Training) -> None:
    """The head has weights of its own, which start equal to those of the embedding."""
    head = training.model.get_submodule("head")
    head.weight = nn.Parameter(parameter(training, "words.weight").detach().clone())
    training.optimizer.add_param_group({"params": [head.weight]})

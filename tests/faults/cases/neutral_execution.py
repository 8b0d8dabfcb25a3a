"""Other ways to execute the same training: recomputed activations, another loop of the optimizer, another layout."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..case import Cases
from ..training import Training, apply_gradients, modules, replace

CASES = Cases("neutral", __name__)

Forward = Callable[..., Any]


def blocks(training: Training) -> list[nn.Module]:
    """The parts of a model that are recomputed: its blocks, or its layers where it has none."""
    found = getattr(training.model, "blocks", None)
    return list(found) if found is not None else [part for part in training.model.children() if list(part.parameters())]


@CASES.planted(models=("transformer", "padded", "autoencoder", "gru"), expected="identical")
def recomputed_blocks(training: Training) -> None:
    """The activations of each block are computed again in the backward."""
    for block in blocks(training):
        replace(block, functools.partial(checkpoint, block.forward, use_reentrant=False))


@CASES.planted(models=("transformer", "padded"), expected="identical")
def recomputed_reentrant(training: Training) -> None:
    """The same by the older implementation, which runs a backward within the backward."""
    for block in blocks(training):
        replace(block, functools.partial(checkpoint, block.forward, use_reentrant=True))


@CASES.planted(models=("transformer", "padded"), modes=("compile",), expected="rounding")
def recomputed_compiled(training: Training) -> None:
    """The same, compiled."""
    for block in blocks(training):
        replace(block, functools.partial(checkpoint, block.forward, use_reentrant=False))


@CASES.planted(models=("autoencoder",), expected="identical")
def recomputed_dropout(training: Training) -> None:
    """Dropout is computed again, with the mask of the forward."""
    drop = modules(training, nn.Dropout)[0]
    replace(drop, functools.partial(checkpoint, drop.forward, use_reentrant=False))


@CASES.planted(models=("autoencoder",), expected="different-setup", line="model.code(model.drop(model.act(x)))")
def recomputed_mask_anew(training: Training) -> None:
    """Dropout and what follows are computed again in the backward, with a mask that is drawn anew."""
    model: Any = training.model

    def resting(x: Tensor) -> Tensor:
        h: Tensor = model.code(model.drop(model.act(x)))
        return h

    def forward(x: Tensor) -> Tensor:
        h = model.encode(model.scale(x))
        out: Tensor = model.decode(checkpoint(resting, h, use_reentrant=False, preserve_rng_state=False))
        return out

    replace(model, forward)


@CASES.planted(models=("cnn",), culprit={"kind": "structure", "module": "norm1"})
def recomputed_batch_norm(training: Training) -> None:
    """Batch norm is computed again in the backward, and updates its running statistics twice."""
    norm = modules(training, nn.BatchNorm2d)[0]
    replace(norm, functools.partial(checkpoint, norm.forward, use_reentrant=False))


@CASES.planted(models=("transformer", "padded"))
def recomputed_without_gradients(training: Training) -> None:
    """The older implementation gets words, which need no gradient, so what is in it gets none."""
    words: Any = training.model.get_submodule("words")
    replace(words, functools.partial(checkpoint, words.forward, use_reentrant=True))


class Forgetful(torch.autograd.Function):
    """Recompute a function in the backward, without the autocast of the forward."""

    @staticmethod
    def forward(ctx: Any, function: Forward, x: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            out: Tensor = function(x)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        inputs = x.detach().float().requires_grad_()
        with torch.enable_grad(), torch.autocast(x.device.type, enabled=False):
            out = ctx.function(inputs)
        out.backward(gradient.to(out.dtype))
        assert inputs.grad is not None
        return None, inputs.grad.to(x.dtype)


@CASES.planted(models=("mixed",), expected="rounding")
def recomputed_without_autocast(training: Training) -> None:
    """What autocast computed in bfloat16 is computed again in float32, which is less rounding."""
    second: Any = training.model.get_submodule("second")
    right = second.forward
    replace(second, lambda x: Forgetful.apply(right, x))  # type: ignore[no-untyped-call]


@CASES.planted(models=("transformer", "padded", "mixed"), expected="rounding")
def optimizer_loop(training: Training) -> None:
    """The optimizer goes tensor by tensor."""
    execute_optimizer(training)


@CASES.planted(models=("transformer", "padded", "mixed", "bag"), expected="rounding")
def optimizer_lists(training: Training) -> None:
    """The optimizer works on lists of tensors."""
    execute_optimizer(training, foreach=True)


@CASES.planted(models=("padded", "autoencoder"), expected="rounding")
def optimizer_kernel(training: Training) -> None:
    """The optimizer is one kernel."""
    execute_optimizer(training, fused=True)


def execute_optimizer(training: Training, *, foreach: bool = False, fused: bool = False) -> None:
    for group in training.optimizer.param_groups:
        group["foreach"], group["fused"] = foreach, fused


@CASES.planted(models=("transformer",), expected="different-setup")
def optimizer_skips_last(training: Training) -> None:
    """A loop over groups of three parameters drops the remainder."""
    parameters = training.optimizer.param_groups[0]["params"]
    del parameters[len(parameters) - len(parameters) % 3 :]


@CASES.planted(models=("padded",), expected="different-setup")
def optimizer_decays_biases(training: Training) -> None:
    """The reference decays all parameters, and this optimizer only the matrices."""
    [group] = training.optimizer.param_groups
    matrices = [p for p in group["params"] if p.dim() > 1]
    others = [p for p in group["params"] if p.dim() < 2]
    group["params"] = matrices
    training.optimizer.add_param_group({"params": others, "weight_decay": 0.0, "initial_lr": group["initial_lr"]})
    assert training.scheduler is not None
    training.scheduler = torch.optim.lr_scheduler.LinearLR(training.optimizer, 1.0, 0.1, 12)


@CASES.planted(models=("transformer",), expected="rounding")
def clipped_in_a_loop(training: Training) -> None:
    """The norm of the gradients is taken tensor by tensor."""

    bound = training.clip
    training.clip = None

    def clip(*_: Any) -> None:
        assert bound is not None
        nn.utils.clip_grad_norm_(training.model.parameters(), bound, foreach=False)

    training.optimizer.register_step_pre_hook(clip)


@CASES.planted(models=("transformer",), culprit={"phase": "optimizer", "op": "mul"})
def clipped_by_largest(training: Training) -> None:
    """The largest element is bounded in place of the norm."""
    bound = training.clip
    training.clip = None

    def clip(*_: Any) -> None:
        assert bound is not None
        nn.utils.clip_grad_norm_(training.model.parameters(), 0.05 * bound, norm_type=float("inf"))

    training.optimizer.register_step_pre_hook(clip)


@CASES.planted(models=("padded", "autoencoder", "mixed"), expected="identical")
def zeroed_not_removed(training: Training) -> None:
    """Gradients are set to zero instead of none."""
    training.optimizer.zero_grad = functools.partial(training.optimizer.zero_grad, set_to_none=False)  # type: ignore[method-assign]


@CASES.planted(models=("padded", "autoencoder"), culprit={"phase": "backward", "op": "add"})
def zeroed_in_part(training: Training) -> None:
    """The gradients of the last layer are never cleared."""
    kept = set(list(training.model.parameters())[-2:])

    def clear(set_to_none: bool = True) -> None:
        for p in training.model.parameters():
            if p not in kept:
                p.grad = None

    training.optimizer.zero_grad = clear  # type: ignore[method-assign]


@CASES.planted(models=("cnn",))
def layout_flattened_wrongly(training: Training) -> None:
    """Features are flattened in the order in which they lie in the channels-last layout."""
    last: Any = training.model.get_submodule("last")
    right = last.forward
    replace(last, lambda x: right(x.view(-1, 16, 3, 3).permute(0, 2, 3, 1).flatten(1)))


@CASES.planted(models=("gru", "padded", "transformer"), expected="rounding")
def halves_beside_each_other(training: Training) -> None:
    """Two replicas of a batch's halves, whose gradients are averaged, as in a data parallel training."""

    def step(training: Training) -> Tensor:
        return replicated(training, 2, weighted=True)

    training.step = step


@CASES.planted(models=("gru", "transformer"), culprit={"kind": "weights"})
def halves_summed(training: Training) -> None:
    """The gradients of two replicas are added up instead of averaged."""

    def step(training: Training) -> Tensor:
        return replicated(training, 1, weighted=False)

    training.step = step


def replicated(training: Training, divisor: int, *, weighted: bool) -> Tensor:
    """Take one step with the gradients of both halves, each computed by itself and then added."""
    [(inputs, targets)] = training.batches[training.number]
    half = len(inputs) // 2
    counts = [float((part >= 0).sum()) for part in targets.split(half)]
    collected: list[list[Tensor]] = []
    for part, wanted, count in zip(inputs.split(half), targets.split(half), counts, strict=True):
        training.optimizer.zero_grad()
        loss = training.loss(training.model(part), wanted)
        (loss * (2 * count / sum(counts) if weighted else 1)).backward()
        collected.append([p.grad.clone() for p in training.model.parameters() if p.grad is not None])
    for p, first, second in zip(training.model.parameters(), *collected, strict=True):
        p.grad = (first + second) / divisor
    apply_gradients(training)
    if training.averaged is not None:
        training.averaged.update_parameters(training.model)
    return loss.detach()


@CASES.planted(models=("mixed",))
def averaged_every_other_step(training: Training) -> None:
    """The averaged weights are updated after every second step."""
    right = training.averaged
    assert right is not None
    update = right.update_parameters
    right.update_parameters = lambda model: update(model) if training.number % 2 == 0 else None  # type: ignore[method-assign]


CASES.of_modes(
    "threads_two",
    "Two threads.",
    models=("transformer", "cnn", "padded", "mixed"),
    modes=("cpu,threads=2",),
    expected="rounding",
)
CASES.of_modes(
    "deterministic_kernels",
    "torch is asked for kernels that repeat their bits.",
    models=("transformer", "padded", "mixed"),
    modes=("cpu,deterministic=on",),
    expected="identical",
)
CASES.of_modes(
    "compiled_by_inductor", "torch.compile.", models=("padded", "mixed"), modes=("compile",), expected="rounding"
)

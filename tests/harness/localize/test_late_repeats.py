"""Compiled backwards that compute a value of the forward again, before and after what they read was overwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from numdrift.harness.drift.step_noise import Noise, TensorNoise
from numdrift.harness.localize.align.repeats import late_repeats, recomputed, repetitions
from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.tape.tape import CompiledNode, Tape

from .pairs import THRESHOLD, taped

X, MEAN, WEIGHT = torch.linspace(-1, 1, 24).view(4, 6), torch.linspace(0, 0.5, 6), torch.linspace(1, 2, 6)
FORWARD = ("sub", "tanh", "mean", "add", "copy_")


def step(*, again: bool, writes: bool = True) -> Callable[[Callable[[str, Tensor], None]], None]:
    """Centre by a running mean, update it, and take a gradient; with `again`, from values that are computed again."""

    mean = MEAN.clone()

    def work(watch: Callable[[str, Tensor], None]) -> None:
        activated = torch.tanh(X - mean)
        later = X.mean(0) + mean
        if writes:
            mean.copy_(later)
        read = torch.tanh(X - mean) if again else activated
        watch("loss 0", activated)
        watch("gradient 0 weight", read * WEIGHT)

    return work


def in_phases(plain: Tape) -> Tape:
    """The tape with the phases that its calls have in a training."""
    calls = [replace(call, phase="forward" if call.name in FORWARD else "backward") for call in plain.calls]
    return replace(plain, calls=tuple(calls))


def compiled(plain: Tape) -> Tape:
    """The tape as that of a compiled forward and a compiled backward that keeps the names of what it repeats."""
    calls, count = [], 0
    for number, call in enumerate(plain.calls):
        is_forward = call.name in FORWARD and count < len(FORWARD)
        count += call.name in FORWARD
        repeats = is_forward and call.name in [earlier.name for earlier in plain.calls[:number]]
        graph = "0 backward" if repeats or not is_forward else "0 forward"
        node = CompiledNode(graph, call.name, call.op, number)
        calls.append(replace(call, compiled=node, sequence=1, phase="backward" if graph == "0 backward" else "forward"))
    return replace(plain, calls=tuple(calls))


def repeated_names(tape: Tape) -> tuple[list[str], list[tuple[str, str]]]:
    """The names of what is computed again, and of each late read with the op that made what it reads."""
    flow = flow_of(tape)
    late = late_repeats(flow, repetitions(flow))
    pairs = [(flow.nodes[reader].call.name, flow.nodes[maker].call.name) for reader, maker in late.items()]
    return [flow.nodes[number].call.name for number in recomputed(flow)], pairs


def test_what_is_read_before_a_write_is_computed_again() -> None:
    assert repeated_names(compiled(taped(step(again=True, writes=False)))) == (["sub", "tanh"], [])


def test_what_is_read_after_a_write_is_not_the_same_value_nor_is_what_follows_from_it() -> None:
    assert repeated_names(compiled(taped(step(again=True)))) == ([], [("sub", "add")])


def test_a_backward_that_reads_too_late_is_named_with_the_write_and_proven() -> None:
    # given an eager step, and a compiled one whose backward subtracts the mean again, after it was written
    eager, wrong = in_phases(taped(step(again=False))), compiled(taped(step(again=True)))
    expected = eager.expected()
    noise = Noise(0, 0, {name: TensorNoise(1e-7, float(value.norm())) for name, value in expected.items()})
    # when
    sides = {"a": StepSide(eager, "first"), "b": StepSide(wrong, "second")}
    found = localize_step(sides, noise, THRESHOLD, lambda text: None)  # type: ignore[arg-type]
    # then
    (culprit,) = [culprit for culprit in found.culprits if culprit.significance == "beyond-rounding"]
    assert (culprit.kind, culprit.op) == ("order", "aten.sub")
    assert culprit.reasons[0].startswith("again in the backward, after add")
    assert culprit.is_proven

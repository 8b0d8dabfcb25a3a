"""Random ops of compiled graphs on tape: they draw into the elements into which their execution drew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from numdrift.harness.backends.compiled.compiled_steps import CompiledStepRecorder
from numdrift.harness.tape.recording.call_log import CallValues
from numdrift.harness.tape.recording.compiled_graphs import CompiledGraph, CompiledGraphs
from numdrift.harness.tape.recording.followed_calls import CallConsumer, OpCall
from numdrift.harness.tape.recording.probed_graph import ProbedGraph, ValueKey
from numdrift.harness.tape.recording.random_calls import RandomCalls
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, is_same
from numdrift.harness.tape.tape import NotReplayable, Tape

from ...tape.trainings import recorded

Tensors = list[torch.Tensor]
Execution = Callable[[torch.Tensor, torch.Tensor], Tensors]

CONTIGUOUS, CHANNELS_LAST = torch.contiguous_format, torch.channels_last
DROPOUT: Any = torch.ops.aten.native_dropout.default


def pooled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(F.conv2d(x, weight), 2)


def dropping(memory_format: torch.memory_format) -> Execution:
    """A dropout whose input is laid out so."""
    return lambda x, weight: list(DROPOUT(pooled(x, weight).contiguous(memory_format=memory_format), 0.25, True))


def inputs() -> Tensors:
    torch.manual_seed(0)
    return [torch.randn(4, 3, 10, 10), torch.randn(8, 3, 3, 3)]


class ChannelsLastWhenRead(ProbedGraph):
    """Says of the pool's values that they lie channels last, which is how they lie where they are read."""

    is_put_off = False

    def __init__(self) -> None:
        """It has no compilation of its own."""

    def values(self, repetition: object) -> dict[ValueKey, torch.Tensor]:
        return {("max_pool2d_with_indices", 0): pooled(*inputs()).contiguous(memory_format=CHANNELS_LAST)}


def taped(
    execute: Execution, probed: ProbedGraph | None = None, values: CallValues | None = None
) -> tuple[Tape, Tensors]:
    """The tape of a step that is one compiled graph, conv, pool and dropout, executed by `execute`; and what that gave.
    What its calls gave is put into `values`."""
    values = values or CallValues()
    given = inputs()
    module = make_fx(lambda x, weight: list(DROPOUT(pooled(x, weight), 0.25, True)))(*given)
    recorder = CompiledStepRecorder(0, __file__, CompiledGraphs(op_by_op=True), values, None)
    given = inputs()
    recorder.start()
    try:
        outputs = recorder.executed(CompiledGraph(0, "forward", module, probed), given, lambda: execute(*given))
        recorder.watch("output", outputs[0])
        recorder.watch("mask", outputs[1])
    finally:
        recorder.stop()
    return recorder.tape(), outputs


@pytest.mark.parametrize("probed", [None, ChannelsLastWhenRead()])
@pytest.mark.parametrize("memory_format", [CONTIGUOUS, CHANNELS_LAST])
def test_a_dropout_draws_into_the_elements_of_its_execution(
    memory_format: torch.memory_format, probed: ProbedGraph | None
) -> None:
    execute = dropping(memory_format)
    tape, _ = taped(execute, probed)
    output, mask = execute(*inputs())
    values = Replay(tape).run(AsRecorded())
    assert is_same(values["output"], output) and is_same(values["mask"], mask)
    copies = [call for call in tape.calls if call.name == "clone"]
    assert len(copies) == (memory_format is not (CONTIGUOUS if probed is None else CHANNELS_LAST))


def test_the_layout_makes_another_mask() -> None:
    masks = [taped(dropping(one))[1][1] for one in (CONTIGUOUS, CHANNELS_LAST)]
    assert not torch.equal(*masks) and masks[0].sum() == masks[1].sum()


def drawing_backwards(x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    """As many numbers from the same generator, each given to another element."""
    output, mask = DROPOUT(pooled(x, weight), 0.25, True)
    mask = mask.flip(0)
    return [torch.where(mask, output, 0), mask]


def drawing_twice(x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    torch.rand(1)
    return dropping(CONTIGUOUS)(x, weight)


@pytest.mark.parametrize(
    ("execute", "reason"),
    [
        (
            drawing_backwards,
            "the node 'native_dropout' (aten.native_dropout.default) of a compiled graph drew random numbers other",
        ),
        (drawing_twice, "more or fewer random numbers"),
    ],
)
def test_what_was_drawn_otherwise_says_where_and_recommends_nothing_that_is_set(
    execute: Execution, reason: str
) -> None:
    with torch._inductor.config.patch(fallback_random=True), pytest.raises(NotReplayable) as found:
        taped(execute)
    assert reason in str(found.value) and "fallback_random" not in str(found.value)
    with torch._inductor.config.patch(fallback_random=False), pytest.raises(NotReplayable) as found:
        taped(execute)
    assert "fallback_random=on" in str(found.value)


def follow(calls: RandomCalls, operation: Any, args: tuple[Any, ...], **kwargs: Any) -> None:
    CallConsumer(calls.before, calls.after).follow(OpCall(operation, args, kwargs))


def test_random_calls_are_given_once_each_by_their_ops() -> None:
    calls, aten = RandomCalls(), cast(Any, torch.ops.aten)
    x = torch.zeros(2, 3).t()
    for operation, args in (
        (aten.mul.Tensor, (x, x)),
        (aten.native_dropout.default, (x, 0.5, False)),
        (aten.bernoulli_.float, (x, 0.5)),
        (aten.native_dropout.default, (x.t(), 0.5, True)),
    ):
        follow(calls, operation, args)
    first, second = calls.next(aten.native_dropout.default), calls.next(aten.native_dropout.default)
    assert first is not None and second is not None and (first.draws, second.draws) == (False, True)
    assert (first.layouts, second.layouts) == ((((3, 2), (1, 3)),), (((2, 3), (3, 1)),))
    in_place = calls.next(aten.bernoulli.p)
    assert in_place is not None and in_place.draws and in_place.layouts == first.layouts
    assert calls.next(aten.native_dropout.default) is None and calls.next(aten.mul.Tensor) is None


@pytest.mark.parametrize(("probed", "known"), [(ChannelsLastWhenRead(), True), (None, False)])
def test_how_an_op_found_its_arguments_is_noted_where_code_was_generated(
    probed: ProbedGraph | None, known: bool
) -> None:
    # given code that lays a weight out channels last by itself, and calls the convolution
    def execute(x: torch.Tensor, weight: torch.Tensor) -> Tensors:
        return dropping(CHANNELS_LAST)(x, weight.contiguous(memory_format=CHANNELS_LAST))

    values = CallValues()
    tape, _ = taped(execute, probed, values)
    # then it is known of the convolution; what a graph executes op by op takes as it was recorded
    [position] = [at for at, call in enumerate(tape.calls) if call.name == "convolution"]
    lies = values.layouts.get(position)
    assert (lies is not None) is known
    assert lies is None or [one.stride for one in lies] == [(300, 100, 10, 1), (27, 1, 9, 3)]


def test_calls_are_given_once_each_to_what_fits_them() -> None:
    calls, aten = RandomCalls(), cast(Any, torch.ops.aten)
    bias, x, weight = torch.zeros(4), torch.zeros(2, 3), torch.zeros(4, 3).t()
    follow(calls, aten.mm.default, (x, weight))
    follow(calls, aten.addmm.out, (bias.expand(2, 4), x, weight.contiguous()), out=torch.zeros(2, 4))
    follow(calls, aten.addmm.default, (bias, x, weight))
    with recorded() as recorder:
        recorder.watch("loss 0", torch.addmm(bias, x, weight))
    [call] = [one for one in recorder.tape().calls if one.name == "addmm"]
    found = [calls.layouts_of(call, aten.addmm.default) for _ in range(3)]
    assert [None if one is None else [lies.stride for lies in one] for one in found] == [
        [(1,), (3, 1), (4, 1)],  # a bias that is expanded to all rows is added as it is
        [(1,), (3, 1), (1, 3)],
        None,
    ]

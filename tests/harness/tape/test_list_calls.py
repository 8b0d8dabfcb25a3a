from __future__ import annotations

import torch

from numdrift.harness.tape.replaying.replay import AsRecorded, Replay, executions, is_same
from numdrift.harness.tape.serving.list_calls import TakenApartKernels, list_ops, taken_apart
from numdrift.harness.tape.serving.step_kernels import ReplayedKernels

from .trainings import started


def test_a_step_with_calls_on_lists_gives_the_same_bits_taken_apart() -> None:
    # given a step whose optimizer updates all parameters together
    tape = started("foreach").taped(3)
    assert list_ops(tape)
    # when
    apart, origins = taken_apart(tape)
    # then it is the same step, one tensor at a time
    values = Replay(apart).run(AsRecorded())
    assert all(is_same(values[name], value) for name, value in tape.expected().items())
    assert all(
        len(part) == 1
        for call in apart.calls
        if call.name in list_ops(tape)
        for part in call.arguments
        if isinstance(part, tuple)
    )
    assert len(origins) == len(apart.calls) > len(tape.calls)
    # and each update is about one parameter
    updates = [call for call, origin in zip(apart.calls, origins, strict=True) if origin.place is not None]
    assert updates and all(len(call.owners) <= 1 for call in updates)
    assert {name for call in updates for name in call.owners} == {name for call in tape.calls for name in call.owners}


def test_parts_are_known_by_the_digests_of_their_calls() -> None:
    tape = started("foreach").taped(3)
    apart, origins = taken_apart(tape)
    whole = ReplayedKernels(lambda: tape)
    # when
    found = TakenApartKernels(whole, origins).digests()
    # then each part has what a replay of the parts themselves gives
    assert found == ReplayedKernels(lambda: apart).digests()


def test_a_part_is_executed_by_the_kernel_on_lists() -> None:
    tape = started("foreach").taped(3)
    apart, origins = taken_apart(tape)
    kernels = TakenApartKernels(ReplayedKernels(lambda: tape), origins)
    call = next(each for each in executions(apart) if each.call.op == "aten._foreach_mul_.Scalar")
    tensor = torch.tensor([1.0, -2.0])
    kernels.execute(call, ([tensor], 3.0), {})
    assert tensor.tolist() == [3.0, -6.0]


def test_a_step_without_such_calls_stays_as_it_is() -> None:
    tape = started("sam").taped(3)
    apart, origins = taken_apart(tape)
    assert not list_ops(tape) and len(apart.calls) == len(tape.calls)
    assert [origin.position for origin in origins] == list(range(len(tape.calls)))

"""Steps with a call that adds in another order each time, taken apart as if it repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch
from tests.harness.tape.adding_anywhere import X, step_of
from torch import Tensor

from numdrift.harness.drift.step_noise import Noise, TensorNoise
from numdrift.harness.localize.align.storage_flow import FlowNode, flow_of
from numdrift.harness.localize.execute.hybrid import Hybrid, execute
from numdrift.harness.localize.execute.prepared_call import PreparedCall
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.execute.unrepeatable_calls import UnrepeatableCalls
from numdrift.harness.localize.execute.worker_calls import WorkerCalls
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.tape.replaying.ensemble import measure_settled
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.serving.step_kernels import ReplayedKernels
from numdrift.harness.tape.tape import Tape

ADDING = "adding.anywhere.default"


class Here:
    """A worker whose kernels are those of this process; `fault` multiplies what the adding op computes."""

    def __init__(self, kernels: ReplayedKernels, fault: float = 1.0) -> None:
        self.count = 0
        self._kernels = kernels
        self._fault = fault

    def prepare(self, nodes: Sequence[FlowNode]) -> None:
        """Everything is ready."""

    def execute(self, call: PreparedCall) -> list[Any]:
        self.count += 1
        outputs = call.execute()
        return [output * self._fault if call.node.call.op == ADDING else output for output in outputs]

    def value(self, node: FlowNode) -> list[Tensor] | None:
        return self._kernels.value(node.execution.position)


def settled(work: Callable[[Tensor], Tensor]) -> tuple[Tape, Noise]:
    noise, tape = measure_settled(step_of(work), 8)
    assert noise.unrepeatable
    tensors = {
        name: TensorNoise(one.rms, one.norm, one.flips, spread=one.spread) for name, one in noise.tensors.items()
    }
    return tape, Noise(0, noise.replays, tensors)


def side(tape: Tape, label: str, fault: float = 1.0) -> StepSide:
    kernels = ReplayedKernels(lambda: tape)
    return StepSide(tape, label, kernels.digests, cast(WorkerCalls, Here(kernels, fault)))


def plain(x: Tensor) -> Tensor:
    total: Tensor = (torch.ops.adding.anywhere(x * 2) / 200).tanh()
    return total


def scaled(x: Tensor) -> Tensor:
    return plain(x) * 1.001


def scaled_before(x: Tensor) -> Tensor:
    return plain(x * 1.001)


def test_two_steps_that_only_add_in_another_order_have_no_cause() -> None:
    (a, noise), (b, _) = settled(plain), settled(plain)
    assert not is_same(a.expected()["loss 0"], b.expected()["loss 0"])
    found = localize_step({"a": side(a, "first"), "b": side(b, "second")}, noise, 16.0, lambda text: None)
    assert not found.culprits and found.controls == {"a": True, "b": True}
    assert all(kernels.unrepeatable for kernels in found.kernels.values())
    # and hybrids give the same bits each time
    first, second = (execute(found.pair, Hybrid("b")) for _ in range(2))
    assert is_same(first["loss 0"], second["loss 0"]) and is_same(first["loss 0"], a.expected()["loss 0"])


@pytest.mark.parametrize("work", [scaled, scaled_before])
def test_a_fault_beneath_the_spread_is_found_and_proven(work: Callable[[Tensor], Tensor]) -> None:
    (a, noise), (b, _) = settled(plain), settled(work)
    found = localize_step({"a": side(a, "first"), "b": side(b, "second")}, noise, 16.0, lambda text: None)
    worst, *others = found.culprits
    assert worst.op == "aten.mul" and worst.significance == "beyond-rounding" and worst.is_proven
    assert all(culprit.significance == "rounding" for culprit in others)
    assert found.left.explained is not None and found.left.explained > 0.995


def test_a_wrong_kernel_of_the_call_itself_does_not_hide_behind_the_other_side() -> None:
    a, _ = settled(plain)
    kept, trusted = UnrepeatableCalls(), UnrepeatableCalls()
    pair_side = side(a, "first")
    node = next(node for node in flow_of(a).nodes if node.call.op == ADDING)
    call = PreparedCall(0, node, (X * 2,), {})
    right = cast(Here, pair_side.calls).execute(call)[0]
    for pool in (kept, trusted):
        pool.execute(1, call, lambda _: [right.clone()])
    # another side's kernel that computes the same up to its spread takes the kept results over, a wrong one does not
    nearly = cast(Here, pair_side.calls)
    assert is_same(trusted.execute(2, call, nearly.execute)[0], right)
    faulty = Here(ReplayedKernels(lambda: a), fault=1.001)
    assert not is_same(kept.execute(2, call, faulty.execute)[0], right)
    assert torch.allclose(kept.execute(2, call, faulty.execute)[0], right * 1.001, rtol=1e-5)

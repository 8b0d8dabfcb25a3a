"""The comparison of plain kernels in this process with the real results of a tape's calls, bit for bit.

A tape is executed in this process, and the bits of every result are compared with those of the mode's real execution.
If they differ, the worker executes the call instead, on the same inputs. The bits of a fused node depend on the nodes
that it was fused with, and the worker may not reproduce them either. Such a node keeps its recorded values. If these
are beyond rounding from the values that the node computes alone, the same distance is assumed on other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from ...errors import NumdriftError
from ...tape.recording.call_log import digest_of
from ...tape.replaying.laid_out import LaidOut
from ...tape.replaying.replay import executed, set_apart
from ...tape.tape import NotReplayable, leaves, mapped
from ...torch_private.own_operators import has_kernel
from ..align.storage_flow import FlowNode, Side
from .hybrid import Hybrid, HybridExecution, Kernels, TapePair
from .worker import WorkerCalls, lies_as_recorded

Digests = Sequence[Sequence[str | None]]

ASTRAY = 64.0
"""The largest distance between a call's values in its graph and those that it computes alone, as a multiple of the
effect of rounding its inputs. Beyond it the call is at fault: the distance does not depend on its inputs' last bits."""


@dataclass(slots=True)
class Found:
    """The numbers of the nodes that differ from plain kernels.

    foreign: nodes with other kernels in their process.
    in_context: nodes whose bits depend on their neighbours in the graph.
    unknown: nodes whose bits are not recorded.
    astray: nodes in context whose values are beyond rounding from those that they compute alone.
    """

    foreign: set[int] = field(default_factory=set)
    in_context: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    astray: set[int] = field(default_factory=set)

    @property
    def special(self) -> set[int]:
        return self.foreign | self.in_context


class SideKernels:
    """A side's kernels: plain ones here, foreign ones in its process, and recorded results for the recorded inputs.

    On other inputs, the recorded distance of a node that goes astray is added to its kernel's results.
    """

    def __init__(self, found: Found, calls: WorkerCalls, recorded: Mapping[int, Recorded]) -> None:
        self._found = found
        self._calls = calls
        self._recorded = recorded

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        # Recorded results are valid only for the recorded layout.
        record = self._recorded.get(number) if lies_as_recorded(node, arguments, keywords) else None
        if record is not None and record.inputs == _digests([*arguments, *keywords.values()]):
            return record.given(node, arguments, keywords)
        if number not in self._found.special:
            return executed(node.execution, arguments, keywords)
        outputs = self._calls.execute(node, arguments, keywords)
        if record is None or number not in self._found.astray:
            return outputs
        shifts = iter(record.apart)
        return [
            output if made_use is None else (output.double() + next(shifts)).to(output.dtype)
            for made_use, output in zip(node.makes, outputs, strict=True)
        ]

    def called(self, number: int, node: FlowNode) -> list[LaidOut] | None:
        """Return the layouts of a compiled node's inputs with which the side's own code called the op.

        Return None if they are unknown or make no difference.
        """
        return self._calls.called(node) if number in self._found.special and node.call.compiled is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The results of a call in its real execution.

    inputs: the digests of its inputs.
    values: its fresh outputs, then its written arguments.
    apart: for a node that goes astray, the distances of the values from those that its kernel computes alone.
    """

    inputs: Sequence[str]
    values: Sequence[torch.Tensor]
    apart: Sequence[torch.Tensor] = ()

    def given(self, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        values = iter(self.values)
        outputs: list[Any] = [next(values).clone() if made_use is not None else None for made_use in node.makes]
        for tensor in node.execution.written(arguments, keywords):
            tensor.copy_(next(values))
        return outputs


class CheckedKernels:
    """Kernels that execute each call in this process and compare its bits with the digests of the real execution.

    Without `ask` the worker executes no call: recorded values replace differing results, and `foreign` is not yet
    distinguished from `in_context`.
    """

    def __init__(self, digests: Digests, calls: WorkerCalls, *, ask: bool) -> None:
        self.found = Found()
        self.recorded: dict[int, Recorded] = {}
        self._digests = digests
        self._calls = calls
        self._ask = ask

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        expected = self._digests[node.execution.position]
        if not any(expected):  # no digest of this call is known, so there is nothing to compare it with
            return self._unchecked(number, node, arguments, keywords)
        if not has_kernel(node.execution.operation):  # an op of the script
            return self._elsewhere(number, node, arguments, keywords, expected)
        written = node.execution.written(arguments, keywords)
        before = [tensor.clone() for tensor in written]
        with suppress(NotImplementedError):  # this process may lack the device, and the kernel with it
            outputs = executed(node.execution, arguments, keywords)
            if _same(_results(node, outputs, written), expected):
                return outputs
        _put_back(written, before)  # an in-place op has overwritten its input
        return self._elsewhere(number, node, arguments, keywords, expected)

    def _unchecked(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Execute a call whose bits are not recorded, in its own process if that computes other bits than this one."""
        self.found.unknown.add(number)
        if not has_kernel(node.execution.operation):
            self.found.foreign.add(number)
            return self._calls.execute(node, arguments, keywords)
        if not self._ask or node.call.compiled is None:
            return executed(node.execution, arguments, keywords)
        written = node.execution.written(arguments, keywords)
        before = [tensor.clone() for tensor in written]
        with suppress(NumdriftError, NotReplayable):
            worker_outputs = self._calls.execute(node, arguments, keywords)
            worker_digests = _results(node, worker_outputs, written)
            after = [tensor.clone() for tensor in written]
            _put_back(written, before)
            outputs = executed(node.execution, arguments, keywords)
            if _same(_results(node, outputs, written), worker_digests):
                return outputs
            self.found.foreign.add(number)
            _put_back(written, after)
            return worker_outputs
        _put_back(written, before)
        return executed(node.execution, arguments, keywords)

    def _elsewhere(
        self,
        number: int,
        node: FlowNode,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        expected: Sequence[str | None],
    ) -> list[Any]:
        # The first execution of the tape uses the recorded values; in the second the worker executes the call.
        values = None if self._ask else self._calls.value(node)
        if values is not None:
            self.found.foreign.add(number)
            return Recorded((), values).given(node, arguments, keywords)
        inputs = _digests([*arguments, *keywords.values()])
        written = node.execution.written(arguments, keywords)
        before = [tensor.clone() for tensor in written]
        alone: list[torch.Tensor] = []
        with suppress(NumdriftError, NotReplayable):
            outputs = self._calls.execute(node, arguments, keywords)
            if _same(_results(node, outputs, written), expected):
                self.found.foreign.add(number)
                return outputs
            alone = [result.clone() for result in _given(node, outputs, written)]
        _put_back(written, before)
        # Not even its own process computes these bits for the call alone: they depend on its neighbours.
        values = self._calls.value(node)
        if values is None:
            return self._unchecked(number, node, arguments, keywords)
        self.found.in_context.add(number)
        distances = [] if written else _apart(node, arguments, keywords, values, alone)
        if distances:
            self.found.astray.add(number)
        self.recorded[number] = Recorded(inputs, values, distances)
        return self.recorded[number].given(node, arguments, keywords)


def verify(pair: TapePair, side: Side, digests: Digests, calls: WorkerCalls) -> tuple[Found, Kernels]:
    """Execute one side's tape and compare it with its digests; return the findings and the side's kernels.

    The tape is executed twice. The first time shows which calls differ, so that the worker can prepare all their
    kernels together.
    """
    first = _walk(pair, side, CheckedKernels(digests, calls, ask=False))
    nodes = pair.flows[side].nodes
    unchecked = {number for number in first.found.unknown if nodes[number].call.compiled is not None}
    if not first.found.special and not unchecked:
        return first.found, pair.kernels[side]
    calls.prepare([nodes[number] for number in sorted(first.found.special | unchecked)])
    second = _walk(pair, side, CheckedKernels(digests, calls, ask=True))
    return second.found, SideKernels(second.found, calls, second.recorded)


def _walk(pair: TapePair, side: Side, checked: CheckedKernels) -> CheckedKernels:
    with set_apart(pair.devices()):
        HybridExecution(pair, Hybrid(side), {**pair.kernels, side: checked}).run_all()
    return checked


def _apart(
    node: FlowNode,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    values: Sequence[torch.Tensor],
    alone: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Return the distances of a call's values from those that it computes alone; empty if they are rounding.

    They are rounding up to ASTRAY times the change of the results when the inputs are moved by their last bit.
    """
    if not alone or not all(value.is_floating_point() and bool(value.isfinite().all()) for value in (*values, *alone)):
        return []
    signs = torch.Generator().manual_seed(0)

    def nudged(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        sign = torch.randint(0, 2, value.shape, generator=signs).mul(2).sub(1).to(value.device, value.dtype)
        return value + value * sign * torch.finfo(value.dtype).eps

    nudged_inputs = mapped(nudged, arguments), {name: mapped(nudged, value) for name, value in keywords.items()}
    own_results, nudged_results = (
        _given(node, executed(node.execution, *inputs), ()) for inputs in ((arguments, keywords), nudged_inputs)
    )
    distances = [value.double() - value_alone.double() for value, value_alone in zip(values, alone, strict=True)]
    for distance, own_result, nudged_result in zip(distances, own_results, nudged_results, strict=True):
        last = float(own_result.double().norm()) * torch.finfo(own_result.dtype).eps
        if float(distance.norm()) > ASTRAY * (float((nudged_result.double() - own_result.double()).norm()) + last):
            return distances
    return []


def _results(node: FlowNode, outputs: Sequence[Any], written: Sequence[torch.Tensor]) -> list[str]:
    return [digest_of(result) for result in _given(node, outputs, written)]


def _given(node: FlowNode, outputs: Sequence[Any], written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the node's fresh outputs, then its written arguments."""
    made_outputs = [output for made_use, output in zip(node.makes, outputs, strict=True) if made_use is not None]
    return [*made_outputs, *written]


def _same(digests: Sequence[str], expected: Sequence[str | None]) -> bool:
    """Check whether all digests equal the expected ones that are known."""
    return len(digests) == len(expected) and all(
        expected_digest is None or expected_digest == digest
        for digest, expected_digest in zip(digests, expected, strict=True)
    )


def _put_back(written: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> None:
    for tensor, content in zip(written, before, strict=True):
        tensor.copy_(content)


def _digests(values: Sequence[Any]) -> list[str]:
    return [digest_of(leaf) for value in values for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]

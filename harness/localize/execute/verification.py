"""The comparison of plain kernels in this process with the real results of a tape's calls, bit for bit.

A tape is executed in this process, and the bits of every result are compared with those of the mode's real execution.
If they differ, the worker executes the call instead, on the same inputs. The bits of a fused node depend on the nodes
that it was fused with, so the worker may fail to reproduce them, too. Such a node keeps its recorded values. If these
differ by more than rounding from what the node computes alone, this distance is also added to what the node computes
alone on other inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from ...errors import NumdriftError
from ...tape.recording.call_log import digest_of
from ...tape.replaying.laid_out import LaidOut
from ...tape.replaying.replay import set_apart
from ...tape.tape import NotReplayable
from ...torch_private.own_operators import has_kernel
from ..align.storage_flow import Side, StorageFlow
from .hybrid import Hybrid, HybridExecution, Values
from .late_reads import LateRead, late_read
from .prepared_call import Kernels, PreparedCall, RecordedResults
from .tape_pair import TapePair
from .unrepeatable_calls import UnrepeatableCalls
from .worker_calls import WorkerCalls

Digests = Sequence[Sequence[str | None]]

ASTRAY = 64.0
"""The largest distance between a call's values in its graph and those that it computes alone, as a multiple of the
effect of rounding its inputs. A call with a larger distance is at fault: rounding does not explain such a distance."""


@dataclass(slots=True)
class Found:
    """The nodes, by number, whose bits plain kernels do not reproduce or may not reproduce.

    foreign: nodes that the mode's process executes with kernels that differ from plain ones.
    in_context: nodes whose bits depend on their neighbours in the graph.
    unknown: nodes whose bits are not recorded.
    unrepeatable: nodes that compute different bits each time.
    astray: nodes of `in_context` whose values differ by more than rounding from those that they compute alone.
    late: nodes of `in_context` whose values come from memory that a later node had already overwritten.
    """

    foreign: set[int] = field(default_factory=set)
    in_context: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    astray: set[int] = field(default_factory=set)
    late: dict[int, LateRead] = field(default_factory=dict)
    unrepeatable: set[int] = field(default_factory=set)

    @property
    def special(self) -> set[int]:
        return self.foreign | self.in_context | self.unrepeatable


class SideKernels:
    """A side's kernels: plain ones in this process, and foreign ones in the worker.

    On recorded inputs, a call returns the recorded results. On other inputs, the recorded distance of a node that goes
    astray is added to its kernel's results.
    """

    def __init__(
        self, found: Found, calls: WorkerCalls, recorded: Mapping[int, RecordedResults], once: UnrepeatableCalls
    ) -> None:
        self._found = found
        self._calls = calls
        self._recorded = recorded
        self._once = once

    def execute(self, call: PreparedCall) -> list[Any]:
        if call.number in self._found.unrepeatable:
            return self._once.execute(id(self), call, self._calls.execute)
        # Recorded results are valid only for the recorded layout.
        record = self._recorded.get(call.number) if call.is_laid_out_as_recorded else None
        if record is not None and record.inputs == _digests(call.tensors):
            return record.outputs(call)
        if call.number not in self._found.special:
            return call.execute()
        outputs = self._calls.execute(call)
        if record is None or call.number not in self._found.astray:
            return outputs
        distances = iter(record.distances)
        return [
            output if made is None else (output.double() + next(distances)).to(output.dtype)
            for made, output in zip(call.node.makes, outputs, strict=True)
        ]

    def called(self, call: PreparedCall) -> list[LaidOut] | None:
        """Return the layouts of a compiled node's inputs with which the side's own code called the op.

        Return None if they are unknown or make no difference.
        """
        is_own_code = call.number in self._found.special and call.node.call.compiled is not None
        return self._calls.called(call.node) if is_own_code else None


class CheckedKernels:
    """Kernels that execute each call in this process and compare its bits with the digests of the real execution.

    Without `ask`, recorded values replace differing results, and the worker executes only calls without recorded
    values. `foreign` is then not yet distinguished from `in_context`. With it, the worker also executes the `doubted`
    calls, which have no recorded values.
    """

    def __init__(
        self, digests: Digests, calls: WorkerCalls, *, ask: bool, doubted: Collection[int] = frozenset()
    ) -> None:
        self.found = Found()
        self.recorded: dict[int, RecordedResults] = {}
        self._digests = digests
        self._calls = calls
        self._ask = ask
        self._doubted = doubted

    def execute(self, call: PreparedCall) -> list[Any]:
        if call.node.call.settled is not None:
            return self._unrepeatable(call, _digests(call.tensors), call.node.call.settled)
        expected = self._digests[call.node.execution.position]
        if not any(expected):  # no digest of this call is known, so there is nothing to compare it with
            return self._unchecked(call)
        if not has_kernel(call.node.execution.operation):  # an op of the script
            return self._elsewhere(call, expected)
        before = [tensor.clone() for tensor in call.written]
        with suppress(NotImplementedError):  # this process may lack the device, and the kernel with it
            outputs = call.execute()
            if _same(_digests(call.results(outputs)), expected):
                return outputs
        call.write(before)  # an in-place op has overwritten its input
        return self._elsewhere(call, expected)

    def _unchecked(self, call: PreparedCall) -> list[Any]:
        """Execute a call whose bits are not recorded: in this process, or in the worker if the worker's bits differ."""
        self.found.unknown.add(call.number)
        if not has_kernel(call.node.execution.operation):
            self.found.foreign.add(call.number)
            return self._calls.execute(call)
        if call.number not in self._doubted:
            return call.execute()
        before = [tensor.clone() for tensor in call.written]
        with suppress(NumdriftError, NotReplayable):
            worker_outputs = self._calls.execute(call)
            worker_digests = _digests(call.results(worker_outputs))
            after = [tensor.clone() for tensor in call.written]
            call.write(before)
            outputs = call.execute()
            if _same(_digests(call.results(outputs)), worker_digests):
                return outputs
            self.found.foreign.add(call.number)
            call.write(after)
            return worker_outputs
        call.write(before)
        return call.execute()

    def _elsewhere(self, call: PreparedCall, expected: Sequence[str | None]) -> list[Any]:
        """Execute a call whose bits differ in this process: in the worker, or by returning the recorded values."""
        # The first execution of the tape uses the recorded values; in the second, the worker executes the call.
        values = None if self._ask else self._calls.value(call.node)
        if values is not None:
            self.found.foreign.add(call.number)
            return RecordedResults((), values).outputs(call)
        inputs = _digests(call.tensors)
        before = [tensor.clone() for tensor in call.written]
        alone: list[torch.Tensor] = []
        with suppress(NumdriftError, NotReplayable):
            outputs = self._calls.execute(call)
            if _same(_digests(call.results(outputs)), expected):
                self.found.foreign.add(call.number)
                return outputs
            alone = [result.clone() for result in call.results(outputs)]
        call.write(before)
        # Not even the worker computes these bits for the call alone: they depend on its neighbours in the graph, or on
        # chance.
        values = self._calls.value(call.node)
        if values is None:
            return self._unchecked(call)
        with suppress(NumdriftError, NotReplayable):
            repeats = not alone or _digests(call.results(self._calls.execute(call))) == _digests(alone)
            call.write(before)
            if not repeats:
                return self._unrepeatable(call, inputs, values)
        self.found.in_context.add(call.number)
        distances = [] if before else _distances_beyond_rounding(call, values, alone)
        if distances:
            self.found.astray.add(call.number)
        self.recorded[call.number] = RecordedResults(inputs, values, distances)
        return self.recorded[call.number].outputs(call)

    def _unrepeatable(self, call: PreparedCall, inputs: Sequence[str], values: Sequence[torch.Tensor]) -> list[Any]:
        """Note a call that does not repeat, and return its recorded results."""
        self.found.unrepeatable.add(call.number)
        record = self.recorded[call.number] = RecordedResults(inputs, values)
        return record.outputs(call)


def verify(
    pair: TapePair, side: Side, digests: Digests, calls: WorkerCalls, once: UnrepeatableCalls
) -> tuple[Found, Kernels, Values | None]:
    """Execute one side's tape and compare it with its digests; return the findings and the side's kernels.

    If plain kernels executed every call, return the watched values of this execution as well. Otherwise, the tape is
    executed twice: the first time shows which calls differ, so that the worker can prepare all their kernels together.
    """
    first = CheckedKernels(digests, calls, ask=False)
    execution = _walk(pair, side, first)
    flow = pair.flows[side]
    unknown = first.found.unknown
    doubted = _read_by(flow, first.found.special, unknown) | _unconfirmed(flow, unknown)
    if not first.found.special and not doubted:
        with set_apart(pair.devices()):
            return first.found, pair.kernels[side], execution.values()
    del execution  # with its values
    calls.prepare([flow.nodes[number] for number in sorted(first.found.special | doubted)])
    second = CheckedKernels(digests, calls, ask=True, doubted=doubted)
    _walk(pair, side, second)
    recorded = functools.cache(lambda number: calls.value(flow.nodes[number]))
    for number in sorted(second.found.in_context):
        # rounding explains the floating-point values of the others
        is_floating = all(use.view.dtype.is_floating_point for use in flow.nodes[number].made)
        if number in second.found.astray or not is_floating:
            found = late_read(flow, number, recorded)
            if found is not None:
                second.found.late[number] = found
    for number in second.found.unrepeatable:
        record = second.recorded[number]
        once.keep(flow.nodes[number].call.op, record.inputs, record.values, replaces=side == "a")
    return second.found, SideKernels(second.found, calls, second.recorded, once), None


def _read_by(flow: StorageFlow, numbers: Collection[int], unknown: Collection[int]) -> set[int]:
    """Return the compiled nodes among the `unknown` ones whose results these nodes read, directly or through others.

    If plain kernels reproduce every known bit that depends on an unknown value, the value needs no other kernel:

        a = exp(x)    unknown
        b = a * 2     unknown, fused with exp
        c = sum(b)    recorded, and plain kernels compute other bits: a and b are doubted
        d = a + 1     recorded, and plain kernels compute the same bits
    """
    doubted, pending = set[int](), [*numbers]
    while pending:
        for use in flow.nodes[pending.pop()].reads:
            maker = flow.makers.get(use.value, -1)
            if maker in unknown and maker not in doubted and flow.nodes[maker].call.compiled is not None:
                doubted.add(maker)
                pending.append(maker)
    return doubted


def _unconfirmed(flow: StorageFlow, unknown: Collection[int]) -> set[int]:
    """Return the compiled nodes among the `unknown` ones on whose results no known value depends.

    No bits show whether plain kernels compute what the compiled graph does there: all nodes of a step whose worker
    cannot tell any value, for example.
    """
    confirmed = set[int]()
    for number in reversed(range(len(flow.nodes))):
        if number not in unknown or number in confirmed:
            confirmed.update(flow.makers.get(use.value, -1) for use in flow.nodes[number].reads)
    return {number for number in unknown if number not in confirmed and flow.nodes[number].call.compiled is not None}


def _walk(pair: TapePair, side: Side, checked: CheckedKernels) -> HybridExecution:
    with set_apart(pair.devices()):
        return HybridExecution(pair, Hybrid(side), {**pair.kernels, side: checked}).run_all()


def _distances_beyond_rounding(
    call: PreparedCall, values: Sequence[torch.Tensor], alone: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the distances of a call's values from those that it computes alone; empty if they come from rounding.

    The distances come from rounding if each one is at most ASTRAY times the change of its result when the inputs are
    moved by their last bit.
    """
    compared = (*values, *alone)
    if not alone or [value.shape for value in values] != [value.shape for value in alone]:
        return []
    if not all(value.is_floating_point() and bool(value.isfinite().all()) for value in compared):
        return []
    signs = torch.Generator().manual_seed(0)

    def nudged(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        sign = torch.randint(0, 2, value.shape, generator=signs).mul(2).sub(1).to(value.device, value.dtype)
        return value + value * sign * torch.finfo(value.dtype).eps

    nudged_call = call.with_tensors(nudged)
    try:
        own_results, nudged_results = call.results(call.execute()), nudged_call.results(nudged_call.execute())
        moves = [
            float((nudged_result.double() - own_result.double()).norm())
            for own_result, nudged_result in zip(own_results, nudged_results, strict=True)
        ]
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001, an op may refuse the moved inputs, and this process may lack its kernel
        return []
    distances = [value.double() - value_alone.double() for value, value_alone in zip(values, alone, strict=True)]
    for distance, own_result, move in zip(distances, own_results, moves, strict=True):
        last = float(own_result.double().norm()) * torch.finfo(own_result.dtype).eps
        if float(distance.norm()) > ASTRAY * (move + last):
            return distances
    return []


def _digests(tensors: Iterable[torch.Tensor]) -> list[str]:
    return [digest_of(tensor) for tensor in tensors]


def _same(digests: Sequence[str], expected: Sequence[str | None]) -> bool:
    """Check whether all digests equal the expected ones that are known."""
    return len(digests) == len(expected) and all(
        expected_digest is None or expected_digest == digest
        for digest, expected_digest in zip(digests, expected, strict=True)
    )

"""Whether the calls of a tape gave, in their own process, the bits that plain kernels give here.

A tape is executed here with the bits of every result held against those of the mode's real execution. Where
they differ the call is executed over there instead, on these very inputs. What cannot be had even so (a node
whose bits depend on what it was fused with) is taken as it was recorded; and where that lies beyond rounding from
what the node gives alone, so far it is taken to lie from that on other inputs too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import NumdriftError
from ..tape.call_log import digest_of
from ..tape.laid_out import LaidOut
from ..tape.replay import executed, set_apart
from ..tape.tape import NotReplayable, leaves, mapped
from ..torch_private.own_operators import has_kernel
from .held_run import WorkerCalls, lies_as_recorded
from .hybrid import Kernels, Mixture, MixtureExecution, TapePair
from .storage_flow import FlowNode, Side

Digests = Sequence[Sequence[str | None]]

ASTRAY = 64.0
"""So many times farther than rounding of its inputs takes it a call in its graph lies from what it gives alone, where
that is a fault: it does not hang on the last bits of its inputs."""


@dataclass(slots=True)
class Found:
    """Numbers of nodes: `foreign` have other kernels in their process, the bits of `in_context` depend on
    their neighbours, those of `unknown` nobody knows. `astray` are those in context whose values lie beyond rounding
    from what they give alone."""

    foreign: set[int] = field(default_factory=set)
    in_context: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    astray: set[int] = field(default_factory=set)

    @property
    def special(self) -> set[int]:
        return self.foreign | self.in_context


class SideKernels:
    """A side's kernels: plain ones here, foreign ones in its process, and recorded results where the inputs
    are the recorded ones. Where they are not, what goes astray in its graph lies as far from its kernel's results."""

    def __init__(self, found: Found, calls: WorkerCalls, recorded: Mapping[int, Recorded]) -> None:
        self._found = found
        self._calls = calls
        self._recorded = recorded

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        # What was recorded was given for the layout of then.
        kept = self._recorded.get(number) if lies_as_recorded(node, arguments, keywords) else None
        if kept is not None and kept.inputs == _digests([*arguments, *keywords.values()]):
            return kept.given(node, arguments, keywords)
        if number not in self._found.special:
            return executed(node.execution, arguments, keywords)
        outputs = self._calls.execute(node, arguments, keywords)
        if kept is None or number not in self._found.astray:
            return outputs
        fresh = iter(kept.apart)
        return [
            one if made is None else (one.double() + next(fresh)).to(one.dtype)
            for made, one in zip(node.makes, outputs, strict=True)
        ]

    def called(self, number: int, node: FlowNode) -> list[LaidOut] | None:
        """How what a node of a compiled graph takes lay when the side's own code called the op, None where that is not
        known or makes no difference."""
        return self._calls.called(node) if number in self._found.special and node.call.compiled is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What a call gave in its real execution, for the inputs with these digests: fresh outputs, then what it wrote.
    `apart` is how far that lies from what its kernel gives alone, where it goes astray."""

    inputs: Sequence[str]
    values: Sequence[torch.Tensor]
    apart: Sequence[torch.Tensor] = ()

    def given(self, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        values = iter(self.values)
        outputs: list[Any] = [next(values).clone() if made is not None else None for made in node.makes]
        for tensor in node.execution.written(arguments, keywords):
            tensor.copy_(next(values))
        return outputs


class CheckedKernels:
    """Executes each call here and holds its bits against the digests of the real execution.

    Without `ask` no call is executed over there: what was recorded is taken for it, and `foreign` waits to be
    told apart.
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
        if not any(expected):  # no digest is known of this call, so there is nothing to hold it against
            return self._unchecked(number, node, arguments, keywords)
        if not has_kernel(node.execution.operation):  # the script's own op
            return self._elsewhere(number, node, arguments, keywords, expected)
        written = node.execution.written(arguments, keywords)
        before = [tensor.clone() for tensor in written]
        with suppress(NotImplementedError):  # this process may lack the device, and the kernel with it
            outputs = executed(node.execution, arguments, keywords)
            if _same(_results(node, outputs, written), expected):
                return outputs
        _put_back(written, before)  # what an op in place wrote is its input no longer
        return self._elsewhere(number, node, arguments, keywords, expected)

    def _unchecked(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        """A call whose bits nobody knows: where its process gives other bits than this one, it is executed there."""
        self.found.unknown.add(number)
        if not has_kernel(node.execution.operation):
            self.found.foreign.add(number)
            return self._calls.execute(node, arguments, keywords)
        if not self._ask or node.call.compiled is None:
            return executed(node.execution, arguments, keywords)
        written = node.execution.written(arguments, keywords)
        before = [tensor.clone() for tensor in written]
        with suppress(NumdriftError, NotReplayable):
            theirs = self._calls.execute(node, arguments, keywords)
            there = _results(node, theirs, written)
            after = [tensor.clone() for tensor in written]
            _put_back(written, before)
            outputs = executed(node.execution, arguments, keywords)
            if _same(_results(node, outputs, written), there):
                return outputs
            self.found.foreign.add(number)
            _put_back(written, after)
            return theirs
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
        # On the first walk what was recorded stands for it; on the second it is executed over there, on these inputs.
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
            alone = [one.clone() for one in _given(node, outputs, written)]
        _put_back(written, before)
        # Not even its own process gives these bits alone: they depend on its neighbours.
        values = self._calls.value(node)
        if values is None:
            return self._unchecked(number, node, arguments, keywords)
        self.found.in_context.add(number)
        apart = [] if written else _apart(node, arguments, keywords, values, alone)
        if apart:
            self.found.astray.add(number)
        self.recorded[number] = Recorded(inputs, values, apart)
        return self.recorded[number].given(node, arguments, keywords)


def verify(pair: TapePair, side: Side, digests: Digests, calls: WorkerCalls) -> tuple[Found, Kernels]:
    """Execute one side's tape against its digests; gives also the kernels that the side turns out to have.

    Twice: first to see which calls are others, so that the worker can make all their kernels ready together.
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
        MixtureExecution(pair, Mixture(side), {**pair.kernels, side: checked}).run_all()
    return checked


def _apart(
    node: FlowNode,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    values: Sequence[torch.Tensor],
    alone: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """How far a call's values lie from what it gives alone; nothing where that is rounding: no more than ASTRAY times
    how far its results go once its inputs are off by their last bit, this way or that."""
    if not alone or not all(one.is_floating_point() and bool(one.isfinite().all()) for one in (*values, *alone)):
        return []
    signs = torch.Generator().manual_seed(0)

    def nudged(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        sign = torch.randint(0, 2, value.shape, generator=signs).mul(2).sub(1).to(value.device, value.dtype)
        return value + value * sign * torch.finfo(value.dtype).eps

    near = mapped(nudged, arguments), {name: mapped(nudged, one) for name, one in keywords.items()}
    ours, theirs = (_given(node, executed(node.execution, *one), ()) for one in ((arguments, keywords), near))
    apart = [value.double() - one.double() for value, one in zip(values, alone, strict=True)]
    for distance, one, other in zip(apart, ours, theirs, strict=True):
        last = float(one.double().norm()) * torch.finfo(one.dtype).eps
        if float(distance.norm()) > ASTRAY * (float((other.double() - one.double()).norm()) + last):
            return apart
    return []


def _results(node: FlowNode, outputs: Sequence[Any], written: Sequence[torch.Tensor]) -> list[str]:
    return [digest_of(one) for one in _given(node, outputs, written)]


def _given(node: FlowNode, outputs: Sequence[Any], written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Its fresh outputs, then what it wrote."""
    fresh = [output for made, output in zip(node.makes, outputs, strict=True) if made is not None]
    return [*fresh, *written]


def _same(found: Sequence[str], expected: Sequence[str | None]) -> bool:
    """Whether all digests are equal that are known."""
    return len(found) == len(expected) and all(
        one is None or one == mine for mine, one in zip(found, expected, strict=True)
    )


def _put_back(written: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> None:
    for tensor, content in zip(written, before, strict=True):
        tensor.copy_(content)


def _digests(values: Sequence[Any]) -> list[str]:
    return [digest_of(leaf) for value in values for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]

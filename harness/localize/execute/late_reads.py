"""Reads of a compiled graph that come too late: the generated code reads memory that it has already overwritten.

A compiler turns ops in place into ops with new results, and then lets values share memory again. If it executes the
write before the read, or overwrites a buffer while it still reads it, every op is right when it is executed alone:

    the script              words = ids * 3; ids.fill_(7)
    the generated code      ids.fill_(7); words = ids * 3

Each element that the read returned is then what the op computes from the earlier content or from the later one. Both
are computed here from the real values of the execution. A read is only reported if all elements agree, and if enough of
them can come from the later content alone that this is no accident.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from ...tape.replaying.replay import AsRecorded, Replay
from ...tape.storages import HeldSlots
from ...tape.tape import NotReplayable, Tape, Watched, in_words
from ..align.repeats import copied_from
from ..align.storage_flow import FlowValue, StorageFlow, Use, is_expanded

Recorded = Callable[[int], Sequence[torch.Tensor] | None]
"""Returns the real results of a node by its number: its fresh outputs, then its written arguments."""

MOST = 12
"""The largest number of nodes, back from the one whose results are wrong, whose own values may be unknown."""

CERTAIN = 20.0
"""The number of bits of evidence above which agreement with the later content is no accident."""

ROUNDED = 64.0
"""The number of roundings up to which two floating-point values are the same: fused code rounds less often."""


@dataclass(frozen=True, slots=True)
class LateRead:
    """A node that reads memory that a later node has already overwritten.

    reader, writer: the numbers of both nodes; for a copy into an input of the graph, `writer` is the node that made the
        copied value
    share: the share of the results' elements that come from the later content
    """

    reader: int
    writer: int
    share: float


def late_read(flow: StorageFlow, number: int, recorded: Recorded) -> LateRead | None:
    """Find the read that explains why a node of a compiled graph does not return what it computes alone.

    Return None if no read explains it, or if the values that decide it are not known.
    """
    real = recorded(number)
    if real is None or [result.shape for result in real] != [use.view.size for use in flow.nodes[number].made]:
        return None
    graph = _execution(flow, number)
    chain = _unknown_before(flow, number, graph, recorded)
    try:
        contents = _contents(flow, chain, recorded)
        early = _results(flow, chain, number, contents)
    except NotReplayable:
        return None
    if all(bool(_same(result, from_early).all()) for result, from_early in zip(real, early, strict=True)):
        return None
    for value, view in _read(flow, chain, number):
        readers = [node for node in chain if any(use.value == value for use in flow.nodes[node].reads)]
        # the nodes that make the value have no part in what is computed from its later content
        rest = [node for node in chain if all(use.value != value for use in flow.nodes[node].made)]
        for writer, later in _later_contents(flow, graph, min(readers), view, contents, recorded):
            with suppress(NotReplayable):  # an op may refuse the other content, for example as indices
                late = _results(flow, rest, number, {**contents, value: later})
                share = _share_of_late(real, early, late)
                if share:
                    return LateRead(min(readers), copied_from(flow, writer), share)
    return None


def _execution(flow: StorageFlow, number: int) -> range:
    """Return the nodes of the execution of the compiled graph that this node is a part of."""

    def is_inside(node: int) -> bool:
        compiled = flow.nodes[node].call.compiled
        own = flow.nodes[number].call.compiled
        return compiled is not None and own is not None and compiled.graph == own.graph

    first = last = number
    while first and is_inside(first - 1):
        first -= 1
    while last + 1 < len(flow.nodes) and is_inside(last + 1):
        last += 1
    return range(first, last + 1)


def _unknown_before(flow: StorageFlow, number: int, graph: range, recorded: Recorded) -> list[int]:
    """Return the node and those before it, in order, whose values were not read and which lead to its arguments."""
    chain, pending = {number}, [number]
    while pending:
        for use in flow.nodes[pending.pop()].reads:
            maker = flow.makers.get(use.value)
            if maker is None or maker not in graph or maker in chain or len(chain) == MOST:
                continue
            if recorded(maker) is None:
                chain.add(maker)
                pending.append(maker)
    return sorted(chain)


def _contents(flow: StorageFlow, chain: Sequence[int], recorded: Recorded) -> dict[FlowValue, torch.Tensor]:
    """Return the real contents that the chain starts from, as bytes. Raises NotReplayable if one is not known."""
    made = {use.value for node in chain for use in flow.nodes[node].made}
    contents: dict[FlowValue, torch.Tensor] = {}
    for use in (use for node in chain for use in flow.nodes[node].reads):
        if use.value in made or use.value in contents:
            continue
        data = flow.input_bytes(use.value)
        contents[use.value] = data if data is not None else _made_content(flow, use.value, recorded)
    return contents


def _made_content(flow: StorageFlow, value: FlowValue, recorded: Recorded) -> torch.Tensor:
    maker = flow.makers.get(value)
    results = None if maker is None else recorded(maker)
    if maker is None or results is None:
        raise NotReplayable("a value before the read is not known")
    for use, result in zip(flow.nodes[maker].made, results, strict=False):
        if use.value == value:
            return _written(flow, use, result, None)
    raise NotReplayable("a value before the read is not known")


def _written(flow: StorageFlow, use: Use, result: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
    """Return the bytes of a slot in which a view has this content; `before` has the bytes outside of the view."""
    slots = HeldSlots(flow.tape)
    size = flow.tape.slots[use.value.slot].size
    data = torch.zeros(size, dtype=torch.uint8) if before is None else before.clone()
    slots.tensor(data.untyped_storage(), use.view).copy_(result.reshape(use.view.size))
    return data


def _read(flow: StorageFlow, chain: Sequence[int], number: int) -> Iterator[tuple[FlowValue, Use]]:
    """Yield each value that the chain reads, with a view of it, but not the result of the node itself."""
    own, seen = {use.value for use in flow.nodes[number].made}, set[FlowValue]()
    for use in (use for node in chain for use in flow.nodes[node].reads):
        if use.value not in own and use.value not in seen:
            seen.add(use.value)
            yield use.value, use


def _later_contents(
    flow: StorageFlow,
    graph: range,
    reader: int,
    read: Use,
    contents: Mapping[FlowValue, torch.Tensor],
    recorded: Recorded,
) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the nodes after a read that may have overwritten what it reads, each with the content that it leaves.

    These are the writes to the same memory, and the results of the same size and dtype, which may share its memory.
    """
    before = contents.get(read.value)
    elements = math.prod(read.view.size)
    for writer in range(reader + 1, graph.stop):
        node = flow.nodes[writer]
        results = recorded(writer)
        for use, result in zip(node.made, results or (), strict=False):
            if result.numel() != math.prod(use.view.size):
                continue
            if use.value.slot == read.value.slot and before is not None:
                yield writer, _written(flow, use, result, before)
            elif use.view.dtype == read.view.dtype and result.numel() == elements and not is_expanded(read.view):
                yield writer, _written(flow, read, result, before)


def _results(
    flow: StorageFlow, chain: Sequence[int], number: int, contents: Mapping[FlowValue, torch.Tensor]
) -> list[torch.Tensor]:
    """Execute the chain with plain kernels, from these contents, and return the node's results.

    Raises NotReplayable if the chain reads a value that has no content, or if an op refuses these contents.
    """
    made = {use.value for node in chain for use in flow.nodes[node].made}
    read = {use.value for node in chain for use in flow.nodes[node].reads} - made
    if not read <= contents.keys():  # the other results of a node that was left out with the value that it makes
        raise NotReplayable("a value that the nodes read is not known")
    inputs = {value.slot: contents[value] for value in read}
    if len(inputs) < len(read):
        raise NotReplayable("the nodes read two contents of one storage")
    calls = tuple(flow.nodes[node].call for node in chain)
    outputs = flow.nodes[number].made
    watched = tuple(Watched(len(calls), f"{at}", use.view, torch.empty(0)) for at, use in enumerate(outputs))
    replay = Replay(Tape(flow.tape.step, flow.tape.slots, inputs, calls, watched))
    try:
        values = replay.run(AsRecorded())
    except (NotReplayable, torch.OutOfMemoryError):
        raise
    except Exception as error:  # an op may raise anything on values that are not its own
        raise NotReplayable(in_words(error)) from error
    return [values[f"{at}"] for at in range(len(outputs))]


def _share_of_late(
    real: Sequence[torch.Tensor], early: Sequence[torch.Tensor], late: Sequence[torch.Tensor]
) -> float | None:
    """Return the share of elements that come from the later content; None if not all elements are explained, or if
    chance may explain them."""
    count, evidence = 0, 0.0
    real, early, late = map(_of_real_numbers, (real, early, late))
    for result, from_early, from_late in zip(real, early, late, strict=True):
        is_early, is_late = _same(result, from_early), _same(result, from_late)
        if not bool((is_early | is_late).all()):
            return None
        only_late = int((is_late & ~is_early).sum())
        count += only_late
        # An integer agrees by chance once in as many times as there are different ones.
        choices = 2.0**CERTAIN if result.is_floating_point() else float(max(2, from_late.unique().numel()))
        evidence += only_late * math.log2(choices)
    return count / max(1, sum(result.numel() for result in real)) if evidence >= CERTAIN else None


def _of_real_numbers(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, each complex one as its real and imaginary parts."""
    return [torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in tensors]


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if not left.is_floating_point():
        return left == right.to(left.dtype)
    rounded = ROUNDED * torch.finfo(left.dtype).eps
    return torch.isclose(left.double(), right.double(), rtol=rounded, atol=0.0, equal_nan=True)

"""Nodes in an order that ONNX accepts: every value made once, and before it is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from ...records.graph_record import Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """`last` is the final name of each value: another one than its own where it was made several times.
    `missing` are values that are taken and that nobody makes."""

    nodes: Sequence[Node]
    last: Mapping[str, str]
    missing: Sequence[str]
    notes: Sequence[str]


def in_order(nodes: Sequence[Node], given: Sequence[str]) -> Ordered:
    """Order the nodes, which change place only where they must; `given` are values that exist before them."""
    single, last = _made_once(nodes, given)
    notes = ["values that are made several times are numbered"] if any(a != b for a, b in last.items()) else []
    makers = {output: number for number, node in enumerate(single) for output in node.outputs if output}
    needs = {
        number: sorted({makers[one] for one in node.inputs if one in makers} - {number})
        for number, node in enumerate(single)
    }
    if any(need > number for number, all_ in needs.items() for need in all_):
        try:
            single = [single[number] for number in _depth_first(needs)]
        except CycleError:
            notes.append("some nodes need each other's values: there is no order")
    taken = (one for node in single for one in node.inputs if one)
    missing = dict.fromkeys(one for one in taken if one not in makers and one not in given)
    return Ordered(single, last, tuple(missing), notes)


def _depth_first(needs: Mapping[int, Sequence[int]]) -> list[int]:
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    order: list[int] = []
    ready = sorted(sorter.get_ready())
    while ready:
        first = ready.pop(0)
        order.append(first)
        sorter.done(first)
        ready = sorted([*ready, *sorter.get_ready()])
    return order


def _made_once(nodes: Sequence[Node], given: Sequence[str]) -> tuple[list[Node], dict[str, str]]:
    """The nodes with a new name for every value that exists when it is made again, as an op in place does."""
    every = {name for node in nodes for name in (*node.inputs, *node.outputs)} | set(given)
    made = Counter(dict.fromkeys(given, 1))
    last = {name: name for name in given}
    single = []
    for node in nodes:
        inputs = tuple(last.get(name, name) for name in node.inputs)
        outputs = []
        for name in node.outputs:
            made[name] += 1
            last[name] = _numbered(name, made, every) if name and made[name] > 1 else name
            outputs.append(last[name])
        single.append(replace(node, inputs=inputs, outputs=tuple(outputs)))
    return single, last


def _numbered(name: str, made: Counter[str], every: set[str]) -> str:
    while f"{name} ({made[name]})" in every:
        made[name] += 1
    numbered = f"{name} ({made[name]})"
    every.add(numbered)
    return numbered

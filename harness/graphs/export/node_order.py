"""Nodes as ONNX and Netron require them: each value is made once and before it is read, and titles are not cut."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from ...records.tools.graph_record import Node


@dataclass(frozen=True, slots=True)
class Ordered:
    """Nodes in order.

    last: the final name of each value; a value that was made several times is renamed
    missing: values that are read but that no node makes
    """

    nodes: Sequence[Node]
    last: Mapping[str, str]
    missing: Sequence[str]
    notes: Sequence[str]


def in_order(nodes: Sequence[Node], existing: Sequence[str]) -> Ordered:
    """Order the nodes, moving only those that must move; `existing` are values that exist before all nodes."""
    # A value that is made again, as by an in-place op, gets a new name each time.
    every = {name for node in nodes for name in (*node.inputs, *node.outputs)} | set(existing)
    made = Counter(dict.fromkeys(existing, 1))
    last = {name: name for name in existing}
    single = []
    for node in nodes:
        # Inputs are looked up before the outputs are renamed: an in-place op reads the old value.
        inputs = tuple(last.get(name, name) for name in node.inputs)
        outputs = []
        for name in node.outputs:
            made[name] += 1
            last[name] = name
            if name and made[name] > 1:
                while f"{name} ({made[name]})" in every:
                    made[name] += 1
                last[name] = f"{name} ({made[name]})"
                every.add(last[name])
            outputs.append(last[name])
        single.append(replace(node, inputs=inputs, outputs=tuple(outputs)))
    notes = (
        ["names of values that are made more than once are numbered"] if any(a != b for a, b in last.items()) else []
    )
    makers = {output: number for number, node in enumerate(single) for output in node.outputs if output}
    needs = {
        number: sorted({makers[value] for value in node.inputs if value in makers} - {number})
        for number, node in enumerate(single)
    }
    if any(need > number for number, all_ in needs.items() for need in all_):
        # Of the nodes that are ready, take the first in the old order, so that as few nodes as possible move.
        sorter = TopologicalSorter(needs)
        try:
            sorter.prepare()
            order: list[int] = []
            ready = sorted(sorter.get_ready())
            while ready:
                first = ready.pop(0)
                order.append(first)
                sorter.done(first)
                ready = sorted([*ready, *sorter.get_ready()])
            single = [single[number] for number in order]
        except CycleError:
            notes.append("some nodes need each other's values, so no valid order exists")
    read_values = (value for node in single for value in node.inputs if value)
    missing = dict.fromkeys(value for value in read_values if value not in makers and value not in existing)
    return Ordered(single, last, tuple(missing), notes)


LONGEST = 21
"""The maximum length of a title: Netron 9 cuts a longer title in the middle."""

MARK = "⚠ "

KERNEL = re.compile(r"(?:cpp|triton(?:_[a-z]+)?)_fused_(?P<ops>.*?)_?(?P<number>\d{1,6})")


def title(op: str, *, marked: bool = False) -> str:
    """Return the op's title, whole if it fits, else with an ellipsis.

    The title of a fused kernel keeps the first ops and the number. Any other title keeps its beginning and last word.
    """
    room = LONGEST - (len(MARK) if marked else 0)
    plain = op.replace(".", "_") or "unknown"
    if kernel := KERNEL.fullmatch(plain):
        # `fused_add_3`, or `sum_tanh_backward_0` where "fused" has no room, or `mul_sub_sum_tanh…_1`.
        ops, end = kernel["ops"], f"…_{kernel['number']}"
        parts = [part for part in (ops, kernel["number"]) if part]
        whole = [candidate for candidate in ("_".join(["fused", *parts]), "_".join(parts)) if len(candidate) <= room]
        kept = ops[: room - len(end) + 1].rpartition("_")[0] or ops[: room - len(end)]
        plain = whole[0] if whole else f"{kept}{end}"
    elif len(plain) > room:
        last = plain.rpartition("_")[2]
        end = f"_{last}" if len(last) < room // 2 else plain[-(room // 2) :]
        plain = f"{plain[: room - 1 - len(end)].rstrip('_')}…{end}"
    return f"{MARK}{plain}" if marked else plain

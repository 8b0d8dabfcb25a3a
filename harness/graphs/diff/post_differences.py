"""Whether two runs' compilers made the same of what they were given: their kernels, held against each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ...records.graph_record import Graph, Node

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?!include|pragma|define)[^\n]*", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"\b(?:cpp|triton\w*?)_fused_\w+|\b(?:buf|arg|primals|tangents)_?\d\w*")


@dataclass(frozen=True, slots=True)
class PostChange:
    """`only_a` and `only_b` are the names of the kernels that the other side does not have."""

    only_a: Sequence[str]
    only_b: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.only_a or self.only_b)


def compare_post(a: Sequence[Graph], b: Sequence[Graph]) -> PostChange:
    """Compare kernels by what they do: the names of kernels, buffers and values, and comments, are nothing."""
    found_a, found_b = _kernels(a), _kernels(b)
    return PostChange(_beyond(found_a, found_b), _beyond(found_b, found_a))


def plain_code(code: str) -> str:
    """Generated code without comments and spaces, its names numbered in the order of their first use."""
    numbers: dict[str, str] = {}
    named = NAME.sub(lambda found: numbers.setdefault(found.group(), f"n{len(numbers)}"), COMMENT.sub("", code))
    return " ".join(named.split())


def _kernels(graphs: Sequence[Graph]) -> list[tuple[Hashable, str]]:
    once = {graph.name: graph for graph in graphs}
    return [(_what_it_does(node), node.op) for graph in once.values() for node in graph.nodes]


def _what_it_does(node: Node) -> Hashable:
    """A generated kernel's source or its ops; of a call into a library the op, since its code is only a
    call."""
    if node.code and node.domain == "inductor":
        return (node.phase, plain_code(node.code))
    body = tuple((one.domain, one.op) for one in node.body)
    return (node.phase, node.domain, body or node.op)


def _beyond(own: Sequence[tuple[Hashable, str]], others: Sequence[tuple[Hashable, str]]) -> list[str]:
    left = Counter(what for what, _ in others)
    names = []
    for what, name in own:
        left[what] -= 1
        if left[what] < 0:
            names.append(name)
    return names

"""No code asks for the name of a mode: modes differ by their `Capabilities`, and do what is their own by themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import pytest

from .levels import ROOT, nodes_of

NAMES = frozenset(("lazy", "xla", "compile"))

SPARED = ("backends", "torch_private")
"""The folders of the modes, and that of torch's own devices."""

SOURCES = sorted(
    path
    for folder in ("harness", "kernels", "plots")
    for path in (ROOT / folder).rglob("*.py")
    if not path.is_symlink() and not set(SPARED) & set(path.parts)
)


def comparisons(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the lines that compare something with the name of a mode; `kind` is that of an event, which may be alike."""
    for node in nodes:
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        named = any(isinstance(part, ast.Constant) and part.value in NAMES for side in sides for part in ast.walk(side))
        if named and not (isinstance(node.left, ast.Attribute) and node.left.attr == "kind"):
            yield node.lineno


def test_nothing_is_compared_with_the_name_of_a_mode() -> None:
    assert [f"{path.relative_to(ROOT)}:{line}" for path in SOURCES for line in comparisons(nodes_of(path))] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("if spec.base == 'lazy': ...", [1]),
        ("a = 1\nb = device.type in ('lazy', 'xla')", [2]),
        ("if work.kind == 'compile': ...", []),
        ("if spec.capabilities.compiles: ...", []),
    ],
)
def test_a_comparison_is_found(source: str, lines: list[int]) -> None:
    assert list(comparisons(ast.walk(ast.parse(source)))) == lines

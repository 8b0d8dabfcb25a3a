"""The statements of a source file, as text that does not depend on layout and place.

The compound statements `if`, `for`, `while` and `with` count only with their first line: `if left < right:`. Other
compound statements (`def`, `class`, `try`, `match`) do not count.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPOUND = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)
UNSAID = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.TryStar, ast.Match)

Position = tuple[int, int]
"""A line, counted from 1, and a column in bytes, as in `ast`."""

Edit = tuple[Position, Position, str]
"""The beginning and the end of a part of a source, and the text that replaces this part."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of one file.

    function: the qualified name of the function or class around it, "" for the module.
    in_function: False if the import of the module executes it.
    previous, next: its neighbours in its block, "" at the block's ends.
    ordinal: the number of statements of the same function and text that come before it.
    """

    file: str
    function: str
    in_function: bool
    text: str
    previous: str
    next: str
    ordinal: int
    node: ast.stmt


def head(node: ast.stmt) -> ast.stmt:
    """Return the statement without the blocks that it encloses."""
    if not isinstance(node, COMPOUND):
        return node
    alone = copy.copy(node)
    alone.body = [ast.Pass()]
    if isinstance(alone, ast.If | ast.While | ast.For | ast.AsyncFor):
        alone.orelse = []
    return alone


def text_of(node: ast.stmt) -> str:
    """Return the text of the statement, on one line and in one layout; "" for compound statements that do not count."""
    if isinstance(node, UNSAID):
        return ""
    written = ast.unparse(head(node))
    return written.rpartition("\n")[0] if isinstance(node, COMPOUND) else written


def statements(file: str, source: str) -> list[Statement]:
    """Return every statement of a file, in order."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for function, in_function, previous, node, following in _walk(ast.parse(source).body, "", False):
        text = text_of(node)
        if not text:
            continue
        found.append(
            Statement(
                file,
                function,
                in_function,
                text,
                _said(previous),
                _said(following),
                seen[function, text],
                node,
            )
        )
        seen[function, text] += 1
    return found


def _said(node: ast.stmt | None) -> str:
    return "" if node is None else text_of(node)


Walked = tuple[str, bool, ast.stmt | None, ast.stmt, ast.stmt | None]


def _walk(block: list[ast.stmt], function: str, in_function: bool) -> Iterator[Walked]:
    for number, node in enumerate(block):
        previous = block[number - 1] if number else None
        following = block[number + 1] if number + 1 < len(block) else None
        yield function, in_function, previous, node, following
        name, inside = function, in_function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{function}.{node.name}" if function else node.name
            inside = in_function or not isinstance(node, ast.ClassDef)
        for inner in _blocks(node):
            yield from _walk(inner, name, inside)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for part in ("body", "orelse", "finalbody"):
        if block := getattr(node, part, None):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body
    for case in getattr(node, "cases", ()):
        yield case.body


def replaced(source: str, statement: Statement, after: str) -> str:
    """Return the source with `after` in place of the statement; all other lines keep their numbers."""
    begin, end = _extent(source, statement.node)
    text = _between(source, begin, end)
    if text.startswith("elif"):
        after = "el" + after
    return inserted(source, [(begin, end, after + "\n" * text.count("\n"))])


def inserted(source: str, edits: list[Edit]) -> str:
    """Return the source with the edits applied. Edits must not overlap."""
    whole = source.encode()
    for begin, end, text in sorted(edits, key=lambda edit: edit[0], reverse=True):
        whole = whole[: _offset(source, begin)] + text.encode() + whole[_offset(source, end) :]
    return whole.decode()


def probed(statement: Statement, call: str) -> list[Edit]:
    """Return the edits that insert a call at the statement. The call must return a false value."""
    node = statement.node
    match node:
        case ast.If() | ast.While():
            first: ast.expr = node.test
        case ast.For() | ast.AsyncFor():
            first = node.iter
        case ast.With() | ast.AsyncWith():
            first = node.items[0].context_expr
        case _:
            begin = node.lineno, node.col_offset
            return [(begin, begin, f"{call}; ")]
    begin, end = (first.lineno, first.col_offset), _end(first)
    return [(begin, begin, f"({call} or ("), (end, end, "))")]


def _end(node: ast.expr | ast.stmt) -> Position:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _extent(source: str, node: ast.stmt) -> tuple[Position, Position]:
    begin = node.lineno, node.col_offset
    match node:
        case ast.If() | ast.While():
            last = _end(node.test)
        case ast.For() | ast.AsyncFor():
            last = _end(node.iter)
        case ast.With() | ast.AsyncWith():
            last = max(_end(item.optional_vars or item.context_expr) for item in node.items)
        case _:
            return begin, _end(node)
    return begin, _after_colon(source, last)


def _after_colon(source: str, position: Position) -> Position:
    lines = source.encode().split(b"\n")
    line, column = position
    while True:
        said = lines[line - 1][column:].partition(b"#")[0]
        if (found := said.find(b":")) >= 0:
            return line, column + found + 1
        line, column = line + 1, 0


def _offset(source: str, position: Position) -> int:
    lines = source.encode().split(b"\n")
    return sum(len(line) + 1 for line in lines[: position[0] - 1]) + position[1]


def _between(source: str, begin: Position, end: Position) -> str:
    return source.encode()[_offset(source, begin) : _offset(source, end)].decode()

"""The lines of a script at which a result may depend on the hash seed of Python.

    vocab = list(set(words))              the order of a set
    chars = sorted(list(set(text)))       no dependence: the set is sorted
    if mode in {"train", "test"}: ...     no dependence: nothing iterates over the set
    torch.manual_seed(hash(name))         the value of hash()

The order of a set of numbers does not depend on the hash seed, but only a set of literals is known to be one.
"""

from __future__ import annotations

import ast
import hashlib
import numbers
from collections.abc import Iterator
from pathlib import Path

from ...runs.recorded_run import RecordedRun

BY_HASH = frozenset({"set", "frozenset", "hash", "union", "intersection", "difference", "symmetric_difference"})
"""The functions and methods whose results depend on the hash seed, or are in an order that does."""

VIEWS = frozenset({"keys", "items"})
"""The methods of a dictionary whose results are combined to a set by an operator, as in `a.keys() & b.keys()`."""

WITHOUT_ORDER = frozenset({"sorted", "len", "min", "max", "any", "all", "bool"})
"""The functions whose results do not depend on the order of their argument."""

COPIES = frozenset({"list", "tuple", "set", "frozenset"})


def hash_lines(run: RecordedRun) -> list[str]:
    """Return these lines of the script and of the user's modules that it imported, as `file:line`.

    The list is empty if the script has changed since the run, or if the run recorded no modules.
    """
    script = Path(run.manifest.reproducer)
    try:
        if hashlib.sha256(script.read_bytes()).hexdigest() != run.manifest.script_sha256:
            return []
    except OSError:
        return []
    files = [str(file) for event in run.journal.events("modules") for file in event["files"]]
    lines = []
    for file in dict.fromkeys(files):
        try:
            tree = ast.parse(Path(file).read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        lines += [f"{file}:{line}" for line in dict.fromkeys(_lines(tree))]
    return lines


def _lines(node: ast.AST, *, unordered: bool = False) -> Iterator[int]:
    """Yield the lines of an expression or statement; if its order does not matter, only those of its parts."""
    if _by_hash(node) and not unordered:
        assert isinstance(node, ast.expr)
        yield node.lineno
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    passes_on = name in WITHOUT_ORDER or (unordered and name in COPIES)
    compared = set[ast.AST]()
    if isinstance(node, ast.Compare):
        equal = isinstance(node.ops[0], (ast.Eq, ast.NotEq))
        compared = {*node.comparators, *([node.left] if equal else [])}
    for child in ast.iter_child_nodes(node):
        yield from _lines(child, unordered=child in compared or passes_on)


def _by_hash(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name in BY_HASH
        case ast.Set(elts=elements):
            return not all(isinstance(element, ast.Constant) and _is_number(element.value) for element in elements)
        case ast.SetComp():
            return True
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.Sub() | ast.BitXor(), left=left, right=right):
            return any(
                isinstance(side, ast.Call) and isinstance(side.func, ast.Attribute) and side.func.attr in VIEWS
                for side in (left, right)
            )
    return False


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Number)

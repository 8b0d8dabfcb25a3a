"""The mutation operators: each changes one thing in the text of a statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from .statements import head, text_of

WEIGHTS = {
    "compare": 5,
    "arithmetic": 4,
    "boolean": 3,
    "not": 3,
    "condition": 3,
    "constant": 4,
    "off by one": 3,
    "removed": 4,
    "return": 2,
    "swapped": 2,
}
"""The relative frequency with which each operator is drawn."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
UNSWAPPED = {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "field", "TypeVar", "print"}
"""Functions whose arguments are not swapped, because the changed call would fail at once."""

COUNTING = {"range", "len", "islice", "enumerate"}

Slot = tuple[Any, str, int | None]
"""The position of an expression: its parent, the field, and the index in the field if that is a list."""


def variants(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield each operator that applies to the statement, with the text of the changed statement."""
    before = text_of(node)
    if not before or _is_spared(node):
        return
    if _is_removable(node):
        yield "removed", "pass"
    if isinstance(node, ast.Raise):
        return  # the text of a message is not behaviour
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC and _is_number(node.op, node.value):
        yield "arithmetic", text_of(ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value))
    alone = head(node)
    for slot, inner in _expressions(alone):
        for operator, changed in _changes(slot, inner):
            if (after := _with(alone, slot, changed)) != before:
                yield operator, after


def _is_spared(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Global | ast.Nonlocal | ast.Pass):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "__slots__"):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _is_removable(node: ast.stmt) -> bool:
    """Check whether the remaining code can run without the statement; without a binding it would fail at once."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)


def _expressions(node: ast.AST) -> Iterator[tuple[Slot, ast.expr]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "targets", "target", "optional_vars", "ctx", "type_params"):
            continue
        for place, inner in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(inner, ast.JoinedStr) or not isinstance(inner, ast.AST) or isinstance(inner, ast.stmt):
                continue
            if isinstance(inner, ast.keyword) and inner.arg == "strict":
                continue  # `strict` checks a condition that always holds
            if isinstance(inner, ast.expr):
                yield (node, name, place), inner
            yield from _expressions(inner)


def _with(alone: ast.stmt, slot: Slot, changed: ast.expr) -> str:
    parent, name, place = slot
    kept = getattr(parent, name)
    if place is None:
        setattr(parent, name, changed)
    else:
        setattr(parent, name, [*kept[:place], changed, *kept[place + 1 :]])
    written = text_of(alone)
    setattr(parent, name, kept)
    return written


def _changes(slot: Slot, inner: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    parent, name, _ = slot
    match inner:
        case ast.Compare():
            for number, op in enumerate(inner.ops):
                ops = [*inner.ops[:number], COMPARISONS[type(op)](), *inner.ops[number + 1 :]]
                yield "compare", ast.Compare(inner.left, ops, inner.comparators)
        case ast.BinOp() if type(inner.op) in ARITHMETIC and _is_number(inner.op, inner.left, inner.right):
            yield "arithmetic", ast.BinOp(inner.left, ARITHMETIC[type(inner.op)](), inner.right)
        case ast.BoolOp():
            yield (
                "boolean",
                ast.BoolOp(ast.Or() if isinstance(inner.op, ast.And) else ast.And(), inner.values),
            )
        case ast.UnaryOp(op=ast.Not()):
            yield "not", inner.operand
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            counts = isinstance(parent, ast.Slice | ast.Subscript) or (
                isinstance(parent, ast.Call) and _called(parent) in COUNTING
            )
            yield "off by one" if counts else "constant", ast.Constant(value + 1)
        case ast.Call():
            yield from _calls(inner)
    if isinstance(parent, ast.Slice) and not isinstance(inner, ast.Constant):
        yield "off by one", ast.BinOp(inner, ast.Add(), ast.Constant(1))
    if name == "test" or (isinstance(parent, ast.comprehension) and name == "ifs"):
        yield "condition", ast.UnaryOp(ast.Not(), inner)
    if isinstance(parent, ast.Return):
        yield from _returns(inner)


def _calls(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    called = _called(call)
    if called == "range" and call.args:
        number = min(1, len(call.args) - 1)
        less = ast.BinOp(call.args[number], ast.Sub(), ast.Constant(1))
        arguments = [*call.args[:number], less, *call.args[number + 1 :]]
        yield "off by one", ast.Call(call.func, arguments, call.keywords)
    if called == "len":
        yield "off by one", ast.BinOp(call, ast.Sub(), ast.Constant(1))
    if called in UNSWAPPED or any(isinstance(one, ast.Starred) for one in call.args):
        return
    if called in ("min", "max") and call.args:
        yield "swapped", ast.Call(ast.Name("max" if called == "min" else "min"), call.args, call.keywords)
    elif len(call.args) >= 2:
        first, second, *rest = call.args
        yield "swapped", ast.Call(call.func, [second, first, *rest], call.keywords)


def _returns(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, ast.Compare | ast.BoolOp) or (
        isinstance(value, ast.Call) and _called(value) in ("any", "all", "isinstance", "bool")
    ):
        yield "return", ast.UnaryOp(ast.Not(), value)
    elif not isinstance(value, ast.Constant):
        yield "return", ast.Constant(None)


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_number(op: ast.operator, *sides: ast.expr) -> bool:
    """Check whether the operands may be numbers: with texts, sets and paths, the changed operation fails at once."""
    return not any(_is_of_others(op, side) for side in sides)


def _is_of_others(op: ast.operator, side: ast.expr) -> bool:
    match side:
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.JoinedStr() | ast.List() | ast.Tuple() | ast.ListComp() | ast.Set() | ast.SetComp():
            return True
        case ast.BinOp():
            return _is_of_others(op, side.left) or _is_of_others(op, side.right)
        case ast.IfExp():
            return _is_of_others(op, side.body) or _is_of_others(op, side.orelse)
        case ast.Name(id=name):
            return isinstance(op, ast.Div) and name.isupper()  # a file's name
    return False

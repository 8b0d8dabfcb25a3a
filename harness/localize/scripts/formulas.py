"""A side's code as a formula: its function in a script, with operators in place of arithmetic ops.

A value that is used once is substituted where it is used.

    t1 = torch.ops.aten.mul.Tensor(output, output)
    t2 = torch.ops.aten.sub.Tensor(1, t1)                   grad_output * (1 - output * output)
    t3 = torch.ops.aten.mul.Tensor(grad_output, t2)
    return [t3]
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence

SIGNS: Mapping[str, ast.operator] = {
    "add": ast.Add(),
    "sub": ast.Sub(),
    "mul": ast.Mult(),
    "div": ast.Div(),
    "pow": ast.Pow(),
}
LONGEST = 90
"""The largest number of characters of a value that is substituted."""

MOST_LINES = 12


class _NoFormula(Exception):
    """Raised if the lines of a function cannot become a formula, because they write to arguments or set generators."""


def formula_of(lines: Sequence[str]) -> list[str]:
    """Return the lines of the formula, the last of which is the result; an empty list if there is no short formula."""
    *statements, last = ast.parse("\n".join(lines)).body
    try:
        if not (isinstance(last, ast.Return) and isinstance(last.value, ast.List) and statements):
            return []
        uses = Counter(node.id for node in ast.walk(ast.Module(statements, [])) if isinstance(node, ast.Name))
        uses.update(node.id for node in ast.walk(last) if isinstance(node, ast.Name))
        writer = _Formulas(uses)
        for statement in statements:
            writer.take(statement)
        results = [ast.unparse(writer.visit(element)) for element in last.value.elts]
    except _NoFormula:
        return []
    formula = [*writer.lines, ", ".join(results)]
    return formula if len(formula) <= MOST_LINES else []


class _Formulas(ast.NodeTransformer):
    """A rewriter of expressions as formulas; `uses` counts the occurrences of each name, including its assignment."""

    def __init__(self, uses: Mapping[str, int]) -> None:
        self.lines: list[str] = []
        self._uses = uses
        self._held: dict[str, ast.expr] = {}

    def take(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call() as call):
                value = self.visit(call)
                if self._uses[name] == 2 and len(ast.unparse(value)) <= LONGEST:
                    self._held[name] = value
                else:
                    self.lines.append(f"{name} = {ast.unparse(value)}")
            case ast.Assign([ast.List(names)], ast.Call() as call):
                self.lines.append(f"{', '.join(map(ast.unparse, names))} = {ast.unparse(self.visit(call))}")
            case _:
                raise _NoFormula

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._held.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node:
            case ast.Call(ast.Attribute(ast.Attribute(ast.Attribute(), op)), arguments, keywords):
                operands: list[ast.expr] = [self.visit(argument) for argument in arguments]
                named = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in keywords]
            case ast.Call(ast.Name("held"), [dtype]):
                return dtype
            case ast.Call(ast.Attribute(value, "clone"), [], []) if isinstance(value, ast.Name):
                raise _NoFormula
            case _:
                self.generic_visit(node)
                return node
        if op.endswith("_") or op.startswith("_foreach"):
            raise _NoFormula
        if op in SIGNS and len(operands) == 2 and not named:
            return ast.BinOp(operands[0], SIGNS[op], operands[1])
        if op == "rsub" and len(operands) == 2 and not named:
            return ast.BinOp(operands[1], ast.Sub(), operands[0])
        if op == "neg":
            return ast.UnaryOp(ast.USub(), operands[0])
        if op == "reciprocal":
            return ast.BinOp(ast.Constant(1), ast.Div(), operands[0])
        return ast.Call(ast.Name(op), operands, named)

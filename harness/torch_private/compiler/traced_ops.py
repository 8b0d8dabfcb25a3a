"""The ops of a call as lines of Python: what torch.compile traces, before any backend compiles it."""

from __future__ import annotations

import ast
import contextlib
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .compiling import own_compile

IMPORTS = {
    "inf": "from math import inf",
    "nan": "from math import nan",
    "device": "from torch import device",
    "_operator": "import _operator",
    "operator": "import operator",
}
"""The imports for names that torch.fx writes, beside `import torch`."""


@dataclass(frozen=True, slots=True)
class TracedOps:
    """A graph as the statements of a function.

    imports: further lines of imports
    inputs: the arguments of the function, in their order
    body: its statements, a line each
    returns: the variables that it returns
    """

    imports: tuple[str, ...]
    inputs: Mapping[str, torch.Tensor]
    body: tuple[str, ...]
    returns: tuple[str, ...]


def traced(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[TracedOps]:
    """Call a function, and return the graphs that torch.compile traces. An error of the call raises nothing."""
    found: list[TracedOps] = []

    def keep(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            written = _written(module, values)
            if written is not None:
                found.append(written)
            return module.forward(*values)

        return call

    torch._dynamo.reset()
    with contextlib.suppress(Exception):  # the function may raise anything, and the graphs before that count
        own_compile()(function, backend=keep, dynamic=False)(*args, **kwargs)
    torch._dynamo.reset()
    return found


def _written(module: torch.fx.GraphModule, values: Sequence[Any]) -> TracedOps | None:
    """Return a graph as statements; None if it has inputs other than tensors, or names that no import provides."""
    if not all(isinstance(value, torch.Tensor) for value in values):
        return None
    code = module.graph.python_code("self")
    (definition,) = [node for node in ast.parse(code.src.strip()).body if isinstance(node, ast.FunctionDef)]
    arguments = [argument.arg for argument in definition.args.args[1:]]
    if len(arguments) != len(values) or any(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        for node in ast.walk(definition)
    ):
        return None
    names = _Names(arguments, {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)})
    body, returns = [], list[str]()
    for statement in definition.body:
        match statement:
            case ast.Assign(value=ast.Constant(value=None)):
                continue  # frees a variable
            case ast.Assign(targets=[ast.Name(id=local)], value=ast.Name(id=value)) if value in arguments:
                names.rename(local, value)
            case ast.Return(value=ast.Tuple(elts=results)):
                returns = [names.visit(result).id for result in results if isinstance(result, ast.Name)]
            case _:
                body.append(ast.unparse(names.visit(statement)))
    used = {node.id for line in body for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)}
    imports = tuple(IMPORTS[name] for name in IMPORTS if name in used)
    inputs = {names.of[name]: value for name, value in zip(arguments, values, strict=True)}
    return TracedOps(imports, inputs, tuple(body), tuple(dict.fromkeys(returns)))


class _Names(ast.NodeTransformer):
    """Gives inputs short names: `weight` in place of `L_self_modules_linear_parameters_weight_`."""

    def __init__(self, arguments: Sequence[str], used_names: set[str]) -> None:
        self.of: dict[str, str] = {}
        for argument in arguments:
            words = [word for word in re.sub(r"^L_|_$", "", argument).split("_") if word]
            short = words[-1] if words and words[-1].isidentifier() and not keyword.iskeyword(words[-1]) else "x"
            name, number = short, 1
            while name in used_names or name in self.of.values():
                number += 1
                name = f"{short}_{number}"
            self.of[argument] = name

    def rename(self, local: str, argument: str) -> None:
        self.of[local] = self.of[argument]

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(self.of.get(node.id, node.id), node.ctx), node)

"""The ops of a call, from which a script that makes the call without the user's files can be written."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch

from .call_copies import copied
from .planned_call import PlannedCall

SIMPLE = (str, bool, int, float, type(None))


def traced_call(call: PlannedCall) -> dict[str, Any]:
    """Return the ops of a call, as a dictionary that torch saves and loads without code.

    graphs: the graphs that torch.compile traces, each with the fields of `TracedOps`
    grad: whether gradients are computed
    under: the contexts of the call, as Python
    compiled_with: the arguments of the script's own `torch.compile` that are plain values
    """
    call.state.restore()
    # imported here because it loads the compiler, which no run in eager mode needs
    traced = importlib.import_module("numdrift.harness.torch_private.compiler.traced_ops").traced
    args, kwargs = call.inputs()
    with call.surroundings():
        found = traced(call.function, args, kwargs)
    call.state.restore()
    return {
        "graphs": [
            {
                "imports": list(ops.imports),
                "inputs": copied(dict(ops.inputs)),
                "body": list(ops.body),
                "returns": list(ops.returns),
            }
            for ops in found
        ],
        "grad": call.grad,
        "under": [_as_python(make) for make in call.under],
        "compiled_with": {name: value for name, value in call.compiled_with.items() if isinstance(value, SIMPLE)},
    }


def _as_python(make: Callable[[], Any]) -> str:
    if isinstance(make, functools.partial):  # the only context with arguments that is captured
        return f"torch.autocast({make.args[0]!r}, dtype={make.keywords['dtype']})"
    return "torch.no_grad()" if make is torch.no_grad else ""

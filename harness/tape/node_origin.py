"""The origin of a node of a compiler's graph: the module and the line of the script that the compiler noted for it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .origin import FRAME, frames_in, line_of

TORCH = str(Path(torch.__file__).parent)
HARNESS = str(Path(__file__).absolute().parents[1])


EXPRESSION = re.compile(r"^([LG])\['(\w+)'\]")
"""The beginning of dynamo's expression for a module or tensor: the local (L) or global (G) variable."""


STACKS = ("nn_module_stack", "fwd_nn_module_stack")
"""The names under which a node has dynamo's module stack, and a backward node that of its forward node."""


GRADIENT_SUM = "Gradient addition node"
"""The beginning of the stack trace that torch's tracer gives to a node in which autograd adds two gradients."""


def sequence_of(node: torch.fx.Node) -> int | None:
    """Return autograd's sequence number of a node, which its forward and backward share; None if it has none.

    The tracer gives the number of the last forward op to every sum of gradients. In eager mode, a sum has the number
    of the backward op that autograd has just executed: the op that makes the second gradient. This function returns
    that number for both.
    """
    while GRADIENT_SUM in str(node.meta.get("stack_trace")):
        added = node.args[1] if len(node.args) > 1 else None
        if not isinstance(added, torch.fx.Node):
            return None
        node = added
    number = node.meta.get("seq_nr")
    return number if isinstance(number, int) and number >= 0 else None


def stack_of(node: torch.fx.Node) -> Mapping[str, Any] | None:
    """Return dynamo's module stack of a node, or of its forward node; None if it has none."""
    return next((node.meta[name] for name in STACKS if node.meta.get(name)), None)


def innermost_module(stack: Mapping[str, Any]) -> tuple[str, Any]:
    """Return dynamo's expression for the innermost module of a node's module stack, and the module's class."""
    innermost = list(stack.values())[-1]
    expression, kind = innermost if isinstance(innermost, (list, tuple)) else (innermost, None)
    return str(expression), kind


def module_path(stack: Mapping[str, Any]) -> str:
    """Return the path of the innermost module of a node's module stack.

    It is `net.1` for `L['self'].net.1`, and "" for the outermost module, `L['module']`.
    """
    return path_in_source(innermost_module(stack)[0])


@functools.cache
def path_in_source(expression: str) -> str:
    """Return the dotted path from the outermost module to a module or tensor, given dynamo's expression for it."""
    path = EXPRESSION.sub("", expression)
    path = re.sub(r"\['?(\w+)'?\]", r".\1", path)
    return re.sub(r"\._(modules|parameters|buffers|orig_mod)(?=\.|$)", "", path).strip(".")


@functools.lru_cache(maxsize=4096)
def line_in_stack(stack: str, script: str) -> str:
    """Return the innermost frame in a stack that is in the user's own files, as `file:line`.

    If there is no such frame, return the innermost frame outside of torch and numdrift, or "".
    """
    own_frames = frames_in(stack, script)
    if own_frames:
        return line_of(own_frames[0])
    library_frames = [frame for frame in FRAME.findall(stack) if not frame[0].startswith((TORCH, HARNESS))]
    return ":".join(library_frames[-1][:2]) if library_frames else ""

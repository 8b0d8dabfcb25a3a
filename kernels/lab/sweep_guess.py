"""Whether an op may work element by element, found out before its user is asked for what it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from numdrift.harness.torch_private.operators import schema_of

_GUESSES = {"bool": False, "number": 0.5, "float": 0.5, "int": 1, "str": "none"}
_SHAPES = ((7,), (3, 3))


def is_missing(argument: Any) -> bool:
    """Whether an argument is neither a tensor nor has a value of its own."""
    kind = str(argument.type)
    return not argument.has_default_value() and kind != "Tensor" and not kind.startswith("Optional")


def guess(argument: Any) -> Any:
    """A value for such an argument: the last dimension, or something small of its type."""
    dimension = -1 if "dim" in argument.name else 1
    return dimension if str(argument.type) == "int" else _GUESSES.get(str(argument.type))


def mixing(call: Callable[[Any, torch.Tensor], Any], overload: Any) -> str:
    """Why an op cannot work element by element; empty where it may.

    call: the op as a function of the overload and one float64 tensor, tried on 7 numbers and on 3 x 3, of
    which one is then changed; inputs that the op does not take tell nothing."""
    schema = schema_of(overload)
    # told from the schema where it can be: batch norm without its statistics crashes the process (torch 2.13)
    if [str(one.type) for one in schema.returns] != ["Tensor"]:
        return "returns no single tensor"
    for begin, what in (("List", "lists"), ("Optional[Tensor]", "tensors that may be missing")):
        if any(str(one.type).startswith(begin) and not one.has_default_value() for one in schema.arguments):
            return f"takes {what}"
    for shape in _SHAPES:
        probe = torch.linspace(0.25, 1, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
        changed = probe.clone()
        changed.view(-1)[0] = 0.75
        try:
            one, other = call(overload, probe), call(overload, changed)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
        if one.shape != probe.shape:
            return f"returns shape {list(one.shape)} for inputs of shape {list(probe.shape)}"
        rest, others = one.reshape(-1)[1:], other.reshape(-1)[1:]
        if not bool(((rest == others) | (rest.isnan() & others.isnan())).all()):
            return "mixes its inputs"
    return ""

"""The names that a script has for tensors that no module was seen to hold: looked for in its variables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

MOST = 10_000
"""How many values are looked at, at most, before a tensor goes without a name."""

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).absolute().parents[2])


def script_scopes() -> Iterator[Mapping[str, Any]]:
    """The variables of the functions under way that are neither torch's nor ours, innermost first, then those
    of the script itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_TORCH, _OWN)):
            yield frame.f_locals
        frame = frame.f_back
    yield vars(sys.modules["__main__"])


def find_modules(tensors: Sequence[torch.Tensor]) -> list[torch.nn.Module]:
    """The modules in the script's variables that hold most of these parameters, each of which holds another
    part."""
    wanted = {id(tensor) for tensor in tensors}
    found: list[tuple[int, torch.nn.Module]] = []
    for _, value in _values():
        if isinstance(value, torch.nn.Module):
            held = sum(id(parameter) in wanted for parameter in value.parameters())
            if held:
                found.append((held, value))
    chosen = []
    for _, module in sorted(found, key=lambda one: -one[0]):  # stable: the innermost scope's first
        own = {id(parameter) for parameter in module.parameters()} & wanted
        if own:
            chosen.append(module)
            wanted -= own
    return chosen


def find_names(tensors: Sequence[torch.Tensor]) -> list[str]:
    """A name for each tensor: that of the variable, `weights.0` in a list; in a dictionary its key alone.

    A tensor that no variable leads to is `parameter.N`, N its place.
    """
    wanted = {id(tensor): number for number, tensor in enumerate(tensors)}
    names: dict[int, str] = {}
    for name, value in _values():
        for path, tensor in _tensors(name, value):
            if id(tensor) in wanted:
                names.setdefault(wanted[id(tensor)], path)
        if len(names) == len(wanted):
            break
    return [names.get(number, f"parameter.{number}") for number in range(len(tensors))]


def tree_names(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of nested dictionaries, lists and tuples, named by their path: `fc.weight`, `0.1`."""
    if isinstance(value, torch.Tensor):
        yield name or "parameter", value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from tree_names(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from tree_names(one, f"{name}.{number}" if name else str(number))


def _tensors(name: str, value: Any) -> Iterable[tuple[str, torch.Tensor]]:
    return tree_names(value, "" if isinstance(value, Mapping) else name)


def _values() -> Iterator[tuple[str, Any]]:
    """The variables of the script's scopes, and what its objects hold, each object once."""
    seen: set[int] = set()
    for scope in script_scopes():
        for name, value in list(scope.items()):
            if id(value) in seen or len(seen) > MOST:
                continue
            seen.add(id(value))
            yield name, value
            if not isinstance(value, (torch.nn.Module, type)) and hasattr(value, "__dict__"):
                held = vars(value)
                if isinstance(held, dict) and not isinstance(value, type(sys)):
                    yield from ((key, one) for key, one in list(held.items()) if isinstance(key, str))

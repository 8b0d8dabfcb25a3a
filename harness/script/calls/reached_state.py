"""The state that a call reaches beside its arguments: what a script changes between two calls of a function.

    setting.factor = 10      an attribute of a class or module that the function's code names
    LIMIT = 3                a global variable that the function's code names
    model.eval()             flags, attributes and submodules of the modules that the call reaches
    weight.requires_grad_(False)

Calls are made after the script has ended, so each call puts this state back first. Only plain values of variables and
attributes are kept; tensors of the script that belong to no module are not.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from ..script_compiling import modules_called_by

PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device)
DICTIONARIES = ("_parameters", "_buffers", "_modules")


class ReachedState:
    """The state that a function reaches, as it is now. `restore` puts it back."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.modules = (
            [function] if isinstance(function, torch.nn.Module) else modules_called_by(function, args, kwargs)
        )
        self._tensors = [
            (tensor, tensor.detach().clone(), tensor.requires_grad)
            for module in self.modules
            for tensor in (*module.parameters(), *module.buffers())
        ]
        self._of_modules = [
            (part, dict(vars(part)), {name: dict(vars(part)[name]) for name in DICTIONARIES})
            for module in self.modules
            for part in module.modules()
        ]
        self._values = [
            (names, name, value)
            for names in _namespaces(function)
            for name, value in list(names.items())
            if not name.startswith("__") and _is_plain(value)
        ]

    def restore(self) -> None:
        """Put the state back, and remove the gradients of parameters."""
        for part, attributes, dictionaries in self._of_modules:
            current = vars(part)
            for name in current.keys() - attributes.keys():
                del current[name]
            current.update(attributes)
            for name, content in dictionaries.items():
                if current[name] != content:
                    current[name].clear()
                    current[name].update(content)
        for names, name, value in self._values:
            if names.get(name) is not value:
                names[name] = value
        with torch.no_grad():
            for tensor, value, requires_grad in self._tensors:
                tensor.grad = None
                if tensor.is_leaf and tensor.requires_grad != requires_grad:
                    tensor.requires_grad_(requires_grad)
                is_elsewhere = tensor.device.type != value.device.type
                if is_elsewhere or not torch.equal(tensor, value):
                    tensor.copy_(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))


class ClassAttributes(MutableMapping[str, Any]):
    """The attributes of a class, which are set through the class."""

    def __init__(self, of_class: type) -> None:
        self._of_class = of_class

    def __getitem__(self, name: str) -> Any:
        return vars(self._of_class)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._of_class, name, value)

    def __delitem__(self, name: str) -> None:
        delattr(self._of_class, name)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self._of_class))

    def __len__(self) -> int:
        return len(vars(self._of_class))


def _namespaces(function: Callable[..., Any]) -> Iterator[MutableMapping[str, Any]]:
    """Yield the variables that the function's code may read: its globals, and the attributes of the classes and objects
    that it names."""
    code = getattr(function, "__code__", None)
    variables = getattr(function, "__globals__", None)
    if isinstance(function, torch.nn.Module):
        of_forward = type(function).forward
        code, variables = getattr(of_forward, "__code__", None), getattr(of_forward, "__globals__", None)
    if not isinstance(code, types.CodeType) or not isinstance(variables, dict):
        return
    yield variables
    for name in code.co_names:
        value = variables.get(name)
        if isinstance(value, type):
            yield ClassAttributes(value)
        elif not isinstance(value, (types.ModuleType, torch.nn.Module, torch.Tensor)) and hasattr(value, "__dict__"):
            yield vars(value)

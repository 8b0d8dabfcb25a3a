"""Scripts whose parameters belong to no module or optimizer: updates by hand, and functions of torch.func.

The parameters are the tensors with respect to which gradients are computed. A step ends when the next one begins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ..torch_private.untraced import transformation_level, unwrapped
from .named_tensors import OPTIMIZED, TrainingTensors
from .script_losses import leaves_of


class TrainingByHand:
    """Finds the parameters and gradients of a script in which only the computation of gradients reveals them."""

    def __init__(self, training: TrainingTensors) -> None:
        self._training = training
        self._gradients: dict[str, torch.Tensor] = {}
        self._of_function: frozenset[str] = frozenset()

    def find_parameters(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Name those of the parameters `tensors` that have no root module and no name yet.

        Return whether there are any.
        """
        # An index in the optimizer does not count as a name.
        named_ids = {id(entry.tensor) for entry in self._training.named() if not entry.name.startswith(OPTIMIZED)}
        unknown = [tensor for tensor in tensors if id(tensor) not in named_ids]
        if not unknown:
            return False
        roots = [module for module in find_modules(unknown) if self._training.expect_root(module)]
        held_ids = {id(entry.tensor) for entry in self._training.named_of_roots()}
        unnamed = [tensor for tensor in unknown if id(tensor) not in held_ids]
        return self._training.add_found(zip(find_names(unnamed), unnamed, strict=True)) or bool(roots)

    def backward_started(self, losses: Sequence[torch.Tensor]) -> bool:
        """Record a backward from these tensors. Return whether it has revealed new parameters."""
        return self.find_parameters(leaves_of(losses))

    def function_called(self, arguments: Sequence[Any]) -> bool:
        """Record that a function is about to be differentiated with respect to these arguments.

        The arguments are nested collections of tensors: the parameters as the previous step left them. Return whether
        the tensors are new.
        """
        trees = arguments[0] if len(arguments) == 1 else list(arguments)
        named = [(name, tensor) for name, tensor in tree_names(trees) if tensor.is_floating_point()]
        self._of_function = frozenset(name for name, _ in named)
        return self._training.add_found(named)

    def gradients_taken(self, inputs: Sequence[torch.Tensor], results: Sequence[Any]) -> None:
        """Record that `torch.autograd.grad` returned `results` for `inputs`, inside or outside torch.func."""
        names = {id(entry.tensor): entry.name for entry in self._training.named()}
        for tensor, result in zip(inputs, results, strict=False):
            inner = unwrapped(tensor)
            gradient = None if result is None else unwrapped(result)
            if inner is not None and gradient is not None and id(inner) in names:
                self._gradients[names[id(inner)]] = gradient.detach()

    def take_gradients(self) -> dict[str, torch.Tensor]:
        """End a step. Return the gradients that are in no `.grad`, by the parameters' names, and forget them."""
        gradients, self._gradients = self._gradients, {}
        return gradients

    def script_ended(self) -> bool:
        """Look one last time for new values of a function's parameters. Return whether there are any.

        They are taken from the first of the script's variables whose tensors have the names of the parameters. The
        first is the right one, since a script defines its parameters before their gradients.
        """
        for value in list(vars(sys.modules["__main__"]).values()) if self._of_function else ():
            named = dict(tree_names(value))
            if named.keys() == self._of_function:
                return self._training.add_found(named.items())
        return False


def plain_losses(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the outputs that are single numbers, without torch.func's wrappers; none outside of torch.func."""
    if transformation_level() == 0:
        return []
    inner = [unwrapped(output) for output in outputs]
    return [loss for loss in inner if loss is not None and loss.numel() == 1]


# Names for tensors that belong to no known module. They come from the script's variables.

MOST = 10_000
"""The largest number of values that are inspected. A tensor that is not among them gets no name from a variable."""

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).absolute().parents[2])


def script_scopes() -> Iterator[Mapping[str, Any]]:
    """Yield the variables of the running functions, innermost first, then the script's globals.

    Functions of torch and of numdrift are skipped.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((_TORCH, _OWN)):
            yield frame.f_locals
        frame = frame.f_back
    yield vars(sys.modules["__main__"])


def find_modules(tensors: Sequence[torch.Tensor]) -> list[torch.nn.Module]:
    """Return the modules in the script's variables that have these parameters.

    The module with the most of them comes first. Each module has at least one parameter that no earlier module has.
    """
    wanted = {id(tensor) for tensor in tensors}
    holders: list[tuple[int, torch.nn.Module]] = []
    for _, value in _values():
        if isinstance(value, torch.nn.Module):
            count = sum(id(parameter) in wanted for parameter in value.parameters())
            if count:
                holders.append((count, value))
    chosen = []
    for _, module in sorted(holders, key=lambda holder: -holder[0]):  # stable: of equals, the innermost comes first
        held_ids = {id(parameter) for parameter in module.parameters()} & wanted
        if held_ids:
            chosen.append(module)
            wanted -= held_ids
    return chosen


def find_names(tensors: Sequence[torch.Tensor]) -> list[str]:
    """Return a name for each tensor: the name of its variable, `weights.0` in a list, only the key in a dictionary.

    A tensor that is in no variable is named `parameter.N`, where N is its index.
    """
    wanted = {id(tensor): number for number, tensor in enumerate(tensors)}
    names: dict[int, str] = {}
    for name, value in _values():
        # In a dictionary, the key alone is the name: `params["fc.weight"]` usually is a module's `fc.weight`.
        for path, tensor in tree_names(value, "" if isinstance(value, Mapping) else name):
            if id(tensor) in wanted:
                names.setdefault(wanted[id(tensor)], path)
        if len(names) == len(wanted):
            break
    return [names.get(number, f"parameter.{number}") for number in range(len(tensors))]


def tree_names(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of nested dictionaries, lists and tuples. A tensor's name is its path: `fc.weight`, `0.1`."""
    if isinstance(value, torch.Tensor):
        yield name or "parameter", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tree_names(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from tree_names(item, f"{name}.{number}" if name else str(number))


def _values() -> Iterator[tuple[str, Any]]:
    """Yield the variables of the script's scopes and the attributes of their values, with names. No value is inspected
    twice."""
    visited: set[int] = set()
    for scope in script_scopes():
        for name, value in list(scope.items()):
            if id(value) in visited or len(visited) > MOST:
                continue
            visited.add(id(value))
            yield name, value
            if not isinstance(value, (torch.nn.Module, type)) and hasattr(value, "__dict__"):
                attributes = vars(value)
                if isinstance(attributes, dict) and not isinstance(value, type(sys)):
                    yield from ((key, attribute) for key, attribute in list(attributes.items()) if isinstance(key, str))

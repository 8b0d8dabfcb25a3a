"""Trainings that no module or optimizer shows whole: updates by hand, and functions of torch.func.

Their parameters are what the gradients are taken by. A step of theirs ends where the next one is seen to
begin.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..torch_private.untraced import transformation_level, unwrapped
from .found_tensors import find_modules, find_names, tree_names
from .named_tensors import OPTIMIZED
from .script_losses import leaves_of
from .training_tensors import TrainingTensors


class TrainingByHand:
    """Finds the parameters of a training that shows them in its gradients only, and what those gradients are."""

    def __init__(self, training: TrainingTensors) -> None:
        self._training = training
        self._gradients: dict[str, torch.Tensor] = {}
        self._of_function: frozenset[str] = frozenset()

    def find_parameters(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Name the parameters among `tensors` that no root module and no name is known of; says whether there
        were any."""
        known = {id(one.tensor) for one in self._training.named() if not one.name.startswith(OPTIMIZED)}
        unknown = [tensor for tensor in tensors if id(tensor) not in known]
        if not unknown:
            return False
        roots = [module for module in find_modules(unknown) if self._training.expect_root(module)]
        held = {id(one.tensor) for one in self._training.named_of_roots()}
        left = [tensor for tensor in unknown if id(tensor) not in held]
        return self._training.add_found(zip(find_names(left), left, strict=True)) or bool(roots)

    def backward_started(self, losses: Sequence[torch.Tensor]) -> bool:
        """A backward starts from these tensors; says whether it made parameters known."""
        return self.find_parameters(leaves_of(losses))

    def function_called(self, arguments: Sequence[Any]) -> bool:
        """A function is about to be differentiated by these arguments: trees of tensors, the parameters as
        the step before has left them. Says whether their names are new."""
        trees = arguments[0] if len(arguments) == 1 else list(arguments)
        named = [(name, tensor) for name, tensor in tree_names(trees) if tensor.is_floating_point()]
        self._of_function = frozenset(name for name, _ in named)
        return self._training.add_found(named)

    def gradients_taken(self, inputs: Sequence[torch.Tensor], results: Sequence[Any]) -> None:
        """`torch.autograd.grad` gave `results` for `inputs`, inside a function of torch.func or outside."""
        names = {id(one.tensor): one.name for one in self._training.named()}
        for tensor, result in zip(inputs, results, strict=False):
            inner = unwrapped(tensor)
            gradient = None if result is None else unwrapped(result)
            if inner is not None and gradient is not None and id(inner) in names:
                self._gradients[names[id(inner)]] = gradient.detach()

    def take_gradients(self) -> dict[str, torch.Tensor]:
        """The step has ended: give the gradients that are in no `.grad`, and forget them."""
        taken, self._gradients = self._gradients, {}
        return taken

    def script_ended(self) -> bool:
        """Look once more for what a function's parameters have become: the first of the script's own
        variables that has their names, since a script has its parameters before their gradients. Says whether
        they are new."""
        for value in list(vars(sys.modules["__main__"]).values()) if self._of_function else ():
            named = dict(tree_names(value))
            if named.keys() == self._of_function:
                return self._training.add_found(named.items())
        return False


def plain_losses(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The single numbers among what is differentiated inside torch.func, as the script's own tensors."""
    if transformation_level() == 0:
        return []
    inner = [unwrapped(output) for output in outputs]
    return [loss for loss in inner if loss is not None and loss.numel() == 1]

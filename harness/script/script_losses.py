"""The losses of a step: the tensors from which its backwards start, without the factor of a gradient scaler."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import torch

from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from ..torch_private.patches import Patches, Undo
from ..torch_private.untraced import transformation_level

Found = Literal["logged", "backward", "gradient", "function"]
"""The origin of a loss: a value that the script logs, `backward()`, `torch.autograd.grad`, or a gradient function of
`torch.func`."""

ORDER: Sequence[Found] = ("logged", "backward", "gradient", "function")
"""The origins by priority.

The first of these origins that occurs in a step supplies the step's losses. In a step with a backward, for example,
`torch.autograd.grad` adds no losses.
"""


class StepLosses:
    """The losses of the current step. They are detached from their graphs, and kept until their values can be read."""

    def __init__(self) -> None:
        self._found: dict[Found, list[torch.Tensor]] = {}

    def add(self, origin: Found, losses: Sequence[torch.Tensor]) -> None:
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            self._found.setdefault(origin, []).extend(loss.detach() for loss in losses)

    @property
    def any(self) -> bool:
        return bool(self._found)

    def take(self) -> tuple[torch.Tensor, ...]:
        """End a step. Return the step's losses and forget them."""
        by_origin, self._found = self._found, {}
        return tuple(next((by_origin[origin] for origin in ORDER if origin in by_origin), ()))


class ScaledLosses:
    """Finds the unscaled loss for a backward that starts from a gradient scaler's result."""

    def __init__(self) -> None:
        self._pairs: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = []

    def scaled(self, losses: Any, results: Any) -> None:
        """Record that a scaler computed `results` from `losses`. Each is a tensor, or a list or tuple of tensors."""
        self._pairs = [pair for pair in self._pairs if pair[0]() is not None]
        if isinstance(losses, torch.Tensor) and isinstance(results, torch.Tensor):
            if results is not losses:  # a disabled scaler returns its argument
                with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                    self._pairs.append((weakref.ref(results), losses.detach()))
        elif isinstance(losses, (list, tuple)) and isinstance(results, (list, tuple)):
            for loss, result in zip(losses, results, strict=False):
                self.scaled(loss, result)

    def unscaled(self, started: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the script's own losses, given the tensors from which a backward starts."""
        losses = {id(result): loss for reference, loss in self._pairs if (result := reference()) is not None}
        return [losses.get(id(tensor), tensor) for tensor in started]


def differentiates_parameters(outputs: Any, inputs: Any, arguments: Mapping[str, Any], *, plain: bool) -> bool:
    """Return whether a call of `torch.autograd.grad` takes the place of a backward.

    It does if it differentiates single numbers with respect to parameters (with `plain`: to any leaves), and creates no
    graph of the gradients. So the call that computes a gradient penalty does not.
    """
    if arguments.get("create_graph") or arguments.get("is_grads_batched"):
        return False
    losses, leaves = tensors_in(outputs), tensors_in(inputs)
    single = bool(losses) and all(loss.numel() == 1 for loss in losses)
    return single and any(isinstance(leaf, torch.nn.Parameter) or (plain and leaf.is_leaf) for leaf in leaves)


def leaves_of(losses: Sequence[torch.Tensor], most: int = 100_000) -> list[torch.Tensor]:
    """Return the leaves that receive a gradient from a backward of these tensors.

    They are in the order of a breadth-first walk of the graph from the losses. The walk visits at most `most` nodes.
    """
    waiting = [loss.grad_fn for loss in losses if loss.grad_fn is not None]
    visited, leaves = set(waiting), dict[int, torch.Tensor]()
    for node in waiting:  # grows during the loop
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            leaves.setdefault(id(variable), variable)
        for following, _ in node.next_functions:
            if following is not None and following not in visited and len(visited) < most:
                visited.add(following)
                waiting.append(following)
    return list(leaves.values())


def tensors_in(tensors: Any) -> list[torch.Tensor]:
    """Return the tensors of a list or tuple, or a single tensor as a list."""
    listed = tensors if isinstance(tensors, (list, tuple)) else [tensors]
    return [tensor for tensor in listed if isinstance(tensor, torch.Tensor)]


Function = Callable[..., Any]


class FunctionObserver(Protocol):
    """An observer of the functions that `torch.func.grad` and `grad_and_value` create."""

    def function_called(self, arguments: Sequence[Any]) -> None:
        """Observe that a function is about to be called, which differentiates with respect to these arguments."""

    def adopted(self, function: Function) -> Function | None:
        """Return the function that the mode executes in place of the script's function, or None if there is none."""

    def function_returned(self, arguments: Sequence[Any], gradients: Any, loss: Any) -> None:
        """Observe the results of an adopted function."""


def report_gradient_functions(observer: FunctionObserver) -> Undo:
    """Report to `observer` the outermost calls of functions created by `torch.func.grad` and `grad_and_value`.

    Return the function that undoes this.
    """
    differentiate = torch.func.grad_and_value

    def reporting(name: str, original: Function) -> Function:
        @functools.wraps(original)
        def make(func: Function, argnums: Any = 0, has_aux: bool = False) -> Function:
            made: Function = original(func, argnums, has_aux)
            if torch.compiler.is_compiling():
                return made
            wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
            whole: list[Function | None] = []

            @functools.wraps(made)
            def call(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling() or transformation_level():
                    return made(*args, **kwargs)
                arguments = [args[number] for number in wanted if -len(args) <= number < len(args)]
                observer.function_called(arguments)
                # A mode that compiles adopts the function together with its gradient. The mode is asked only once.
                if not whole:
                    whole.append(observer.adopted(differentiate(func, argnums, has_aux)))
                if whole[0] is None:
                    return made(*args, **kwargs)
                # `grad_and_value` returns (gradients, value), or (gradients, (value, aux)). `grad` returns gradients,
                # or (gradients, aux).
                gradients, value = whole[0](*args, **kwargs)
                observer.function_returned(arguments, gradients, value[0] if has_aux else value)
                if name == "grad":
                    return (gradients, value[1]) if has_aux else gradients
                return gradients, value

            return call

        return make

    with Patches("the recording's hooks") as patches:
        for name in ("grad", "grad_and_value"):
            patches.replace(torch.func, name, reporting(name, getattr(torch.func, name)))
    return patches.undo

"""A call that a run makes, with everything that it needs to be made again in the same way."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from .call_copies import copied, tensors_of
from .reached_state import ReachedState


@dataclass
class PlannedCall:
    """A call of a function or module.

    label: the call in words
    args, kwargs: the inputs; each execution of the call gets copies of them
    compiled_with: the arguments of the script's own `torch.compile`
    seed: the seed of all generators at the beginning of the call
    grad: whether gradients are computed
    under: the contexts in which the script made the call, such as `torch.no_grad`
    computed: the inputs that require a gradient and are no leaves, so that the call may write to them
    cotangents: the gradients of the result with respect to the outputs, from which a backward starts; None until the
        outputs are known
    state: the state that the call reaches beside its arguments, as it is at the beginning of the call
    """

    label: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    compiled_with: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    grad: bool = True
    under: tuple[Callable[[], Any], ...] = ()
    computed: frozenset[str] = frozenset()
    cotangents: list[torch.Tensor] | None = None
    state: ReachedState = field(init=False)

    def __post_init__(self) -> None:
        self.state = ReachedState(self.function, self.args, self.kwargs)

    def names(self) -> list[tuple[str, torch.Tensor]]:
        """Return the input tensors by name: the parameter's name, with the path within a container."""
        return named_inputs(self.function, self.args, self.kwargs)

    def inputs(self, device: str = "") -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return copies of the inputs, on a device if one is named, with their layouts and overlaps in memory."""
        args, kwargs = copied((self.args, dict(self.kwargs)), device)
        return args, kwargs

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """Seed the generators, and enter the contexts in which the script made the call."""
        seed_generators(self.seed)
        with ExitStack() as stack:
            for make in self.under:
                stack.enter_context(make())
            yield


def seed_generators(seed: int) -> None:
    """Seed the generators of torch, Python and, if it is imported, NumPy."""
    torch.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


def named_inputs(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors among the arguments with their names: `x`, `states_0` in a list, `input_0` without a name."""
    of_call = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        parameters = [
            parameter.name
            for parameter in inspect.signature(of_call).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        parameters = []
    names = [*parameters[: len(args)], *(f"input_{number}" for number in range(len(parameters), len(args)))]
    return list(tensors_of({**dict(zip(names, args, strict=True)), **kwargs}))

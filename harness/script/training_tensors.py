"""The tensors of a training under their names, wherever the script keeps them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from .named_tensors import OPTIMIZED, NamedTensor, RootModules


@dataclass(frozen=True, slots=True)
class StateSlot:
    """What one optimizer keeps about one parameter: `state` is None before it keeps anything.

    `optimizer` is its place among `TrainingTensors.optimizers`, `group` the parameter's and `holder` the
    optimizer's own dictionary.
    """

    optimizer: int
    name: str
    parameter: torch.Tensor
    group: Mapping[str, Any]
    holder: Any

    @property
    def state(self) -> Any:
        return self.holder.get(self.parameter)


class TrainingTensors:
    """The root modules that were called and the optimizers that were made, none of them kept alive."""

    def __init__(self) -> None:
        self._roots = RootModules()
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._found: dict[str, torch.Tensor] = {}

    def add_root(self, module: torch.nn.Module) -> bool:
        """Take note of a called module; says whether it is a new root that holds parameters."""
        return self._roots.add(module)

    def expect_root(self, module: torch.nn.Module) -> bool:
        """Take the names of a module that was not called yet; says whether they are new."""
        return self._roots.expect(module)

    def root_classes(self) -> list[str]:
        """The classes of the root modules, in the order of their first call."""
        return self._roots.classes()

    def add_optimizer(self, optimizer: Optimizer) -> bool:
        """Take note of an optimizer that was made or that steps; says whether it is new."""
        if any(known() is optimizer for known in self._optimizers):
            return False
        self._optimizers = [known for known in self._optimizers if known() is not None]
        self._optimizers.append(weakref.ref(optimizer))
        return True

    def add_found(self, named: Iterable[tuple[str, torch.Tensor]]) -> bool:
        """Take parameters that no module and no optimizer shows, in place of those that were found by the
        same names; says whether these are other tensors. The arguments of a function, new tensors in every
        step, are kept alive until the next ones come."""
        before = {name: id(tensor) for name, tensor in self._found.items()}
        self._found |= named
        return before != {name: id(tensor) for name, tensor in self._found.items()}

    def optimizers(self) -> list[Optimizer]:
        """In the order of their making. One that has groups and state in common with an earlier one is left
        out: SAM's wrapper and base optimizer hold the same objects."""
        found: dict[tuple[int, ...], Optimizer] = {}
        for optimizer in (known for reference in self._optimizers if (known := reference()) is not None):
            parts = (id(optimizer.state), *(id(group) for group in optimizer.param_groups))
            found.setdefault(parts, optimizer)
        return list(found.values())

    def named(self) -> list[NamedTensor]:
        """Parameters and buffers, each once, then what only the optimizers hold."""
        optimized = [
            parameter for one in self.optimizers() for group in one.param_groups for parameter in group["params"]
        ]
        named = list(self._roots.named_tensors(optimized))
        return named if not self._found else self._with_found(named)

    def _with_found(self, named: list[NamedTensor]) -> list[NamedTensor]:
        """What was found goes by its own name: a function's argument stands for the module's parameter."""
        own = {id(tensor): name for name, tensor in self._found.items()}
        kept = [
            one
            for one in named
            if one.name not in self._found and not (id(one.tensor) in own and one.name.startswith(OPTIMIZED))
        ]
        here = {id(one.tensor) for one in kept}
        found = ((name, tensor) for name, tensor in self._found.items() if id(tensor) not in here)
        return [*kept, *(NamedTensor(name, "parameter", tensor) for name, tensor in found)]

    def named_of_roots(self) -> list[NamedTensor]:
        """Those of them that the root modules hold."""
        return list(self._roots.named_tensors([]))

    def slots(self) -> Iterator[StateSlot]:
        """Where the optimizers keep their state, optimizer by optimizer in the order of their parameters."""
        names = {id(one.tensor): one.name for one in self.named()}
        seen: set[tuple[int, int]] = set()
        for number, optimizer in enumerate(self.optimizers()):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    place = (id(optimizer.state), id(parameter))
                    if place not in seen:
                        seen.add(place)
                        yield StateSlot(number, names[id(parameter)], parameter, group, optimizer.state)


def gradients(named: list[NamedTensor]) -> dict[str, torch.Tensor]:
    """The gradients that there are, as `gradient net.0.weight`."""
    return {
        f"gradient {one.name}": one.tensor.grad
        for one in named
        if one.kind == "parameter" and one.tensor.grad is not None
    }

"""The tensors that a script trains with and their names, wherever the script keeps the tensors."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer

from ..tape.shards import local_tensor, own_part, shard_of
from .parallel import plain_name, wrapper_paths
from .under_construction import under_construction

OPTIMIZED = "optimized."
"""The prefix of the name of a parameter that is known only from an optimizer. The parameter's index follows."""


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A parameter or buffer with its qualified name. `kind` is "parameter" or "buffer".

    If the tensor is sharded, `describe` returns the shape of this rank's part, and the part's position in the whole
    tensor.
    """

    name: str
    kind: str
    tensor: torch.Tensor

    def describe(self) -> dict[str, object]:
        dtype = str(self.tensor.dtype).removeprefix("torch.")
        described: dict[str, object] = {
            "name": self.name,
            "kind": self.kind,
            "shape": list(self.tensor.shape),
            "dtype": dtype,
        }
        shard = shard_of(self.tensor)
        if shard is None:
            return described
        return described | {"shape": list(local_tensor(self.tensor).shape), "shard": asdict(shard)}


class RootModule:
    """A weak reference to a root module, and the names of the module's tensors, which may outlive the module.

    A library may wrap the script's model in a new module for each call. The wrapper is gone before the step ends, or
    later if a compiler keeps it. The modules inside live on, and their tensors keep the names that they had in the
    wrapper. The weak references are to these modules and not to the tensors, since torch refuses to swap a tensor that
    has weak references.
    """

    def __init__(self, prefix: str, module: torch.nn.Module) -> None:
        self.prefix = prefix
        self.kind = type(module)
        self.reference = weakref.ref(module)
        self._wrappers = wrapper_paths(module)
        self._parts: list[tuple[str, weakref.ref[torch.nn.Module]]] = []
        self.shapes = _shapes(module)
        list(self.named())

    @property
    def is_gone(self) -> bool:
        """True if neither the module nor a part of it exists any more."""
        return self.reference() is None and all(part() is None for _, part in self._parts)

    def named(self) -> Iterator[NamedTensor]:
        """Yield the module's parameters, then its buffers. A tensor that several modules share is yielded for each."""
        module = self.reference()
        if module is not None:
            self._parts = [(f"{path}." if path else "", weakref.ref(part)) for path, part in module.named_modules()]
        alive = [(path, part) for path, reference in self._parts if (part := reference()) is not None]
        for kind, attribute in (("parameter", "_parameters"), ("buffer", "_buffers")):
            for path, part in alive:
                for name, tensor in getattr(part, attribute).items():
                    if tensor is not None:
                        yield NamedTensor(self.prefix + plain_name(path + name, self._wrappers), kind, tensor)


def _shapes(module: torch.nn.Module) -> dict[str, torch.Size | None]:
    """Return the shapes of a module's tensors by name, None for those that are not materialized yet."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    return {name: None if is_lazy(tensor) else tensor.shape for name, tensor in tensors}


class RootModules:
    """The outermost modules that the script called, in the order of their first call.

    The tensors of the first module keep their plain names. The tensors of a later module get a prefix: the name of the
    script's variable that refers to the module, or the name of its class. Modules are not kept alive.
    """

    def __init__(self) -> None:
        self._roots: list[RootModule] = []
        self._seen: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._prefixes: set[str] = set()

    def add(self, module: torch.nn.Module) -> bool:
        """Record a called module. Return whether it is a new root that has parameters.

        A module that is called in the constructor of another module, for example to see the shape of its output, is no
        root, but a part of the other module.
        """
        if module in self._seen or under_construction():
            return False
        self._seen.update(module.modules())
        if next(module.parameters(), None) is None:
            return False
        self._name(module)
        return True

    def made_anew(self, module: torch.nn.Module) -> bool:
        """Record a called module if it replaces a root. Return whether it does.

        It replaces a root if it is a different object of the root's class, is called for the first time, and has no
        tensors but those of the roots.
        """
        if module in self._seen or all(type(module) is not root.kind for root in self._roots):
            return False
        if any(root.reference() is module for root in self._roots):  # a root that was expected
            return False
        known_ids = {id(entry.tensor) for root in self._roots for entry in root.named()}
        tensors = [*module.parameters(), *module.buffers()]
        if not tensors or any(id(tensor) not in known_ids for tensor in tensors) or under_construction():
            return False
        self._seen.update(module.modules())
        return True

    def expect(self, module: torch.nn.Module) -> bool:
        """Reserve the names of a module that has not been called yet. Return whether the names are new.

        `add` still treats the module as new.
        """
        return module not in self._seen and self._name(module)

    def _name(self, module: torch.nn.Module) -> bool:
        if any(root.reference() is module for root in self._roots):
            return False
        replaced = self._rebuilt(module)
        if replaced is not None:
            self._roots[replaced] = RootModule(self._roots[replaced].prefix, module)
            return True
        # `0.weight` in the first root, `head.0.weight` in a second one, `head2.0.weight` in a third also called `head`.
        prefix = ""
        if self._prefixes:
            wanted = variable_name(module)
            prefix, count = f"{wanted}.", 1
            while prefix in self._prefixes:
                count += 1
                prefix = f"{wanted}{count}."
        self._prefixes.add(prefix)
        self._roots.append(RootModule(prefix, module))
        return True

    def _rebuilt(self, module: torch.nn.Module) -> int | None:
        """Return the index of the root whose place a module takes: it is gone, and had the same class and tensors.

        A script that resumes a training run may build its model anew.
        """
        for index, root in enumerate(self._roots):
            if root.is_gone and root.kind is type(module) and root.shapes == _shapes(module):
                return index
        return None

    def classes(self) -> list[str]:
        """Return the classes of the roots whose tensors still exist."""
        return [root.kind.__name__ for root in self._roots if next(root.named(), None) is not None]

    def named_tensors(self, optimized: Iterable[torch.Tensor]) -> Iterator[NamedTensor]:
        """Yield the roots' parameters and buffers, each once, then the tensors that only the optimizers have."""
        visited: set[int] = set()
        for root in self._roots:
            for entry in root.named():
                if id(entry.tensor) not in visited:
                    visited.add(id(entry.tensor))
                    yield entry
        for index, tensor in enumerate(optimized):
            if id(tensor) not in visited:
                visited.add(id(tensor))
                yield NamedTensor(f"{OPTIMIZED}{index}", "parameter", tensor)


def put(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """Copy a value into a tensor of the script, so that views and aliases stay valid. Return whether the value fits.

    The copy bypasses autograd, so values that the script has already computed from the tensor can still be
    differentiated.
    """
    tensor, value = local_tensor(tensor), own_part(tensor, value)
    if is_lazy(tensor) or tensor.is_meta or tensor.layout != torch.strided or tensor.shape != value.shape:
        return False
    try:
        tensor.data.copy_(value)
    except RuntimeError:  # an expanded tensor, which cannot be written to
        return False
    return True


def variable_name(module: torch.nn.Module) -> str:
    """Return the name of the script's global variable that refers to the module, else its class in lower case."""
    for name, value in vars(sys.modules["__main__"]).items():
        if value is module:
            return name
    return type(module).__name__.lower()


@dataclass(frozen=True, slots=True)
class StateSlot:
    """The place of an optimizer's state for one parameter.

    optimizer: the optimizer's index in `TrainingTensors.optimizers`
    group: the parameter's group
    holder: the optimizer's dictionary of states
    state: the state, None before the optimizer has created it
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
    """The root modules that were called, and the optimizers that were created. None of them are kept alive."""

    def __init__(self) -> None:
        self._roots = RootModules()
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._found: dict[str, torch.Tensor] = {}

    def add_root(self, module: torch.nn.Module) -> bool:
        """Record a called module. Return whether it is a new root that has parameters."""
        return self._roots.add(module)

    def root_made_anew(self, module: torch.nn.Module) -> bool:
        """Record a called module if it replaces a root. Return whether it does."""
        return self._roots.made_anew(module)

    def expect_root(self, module: torch.nn.Module) -> bool:
        """Reserve the names of a module that has not been called yet. Return whether the names are new."""
        return self._roots.expect(module)

    def root_classes(self) -> list[str]:
        """Return the classes of the root modules, in the order of their first call."""
        return self._roots.classes()

    def add_optimizer(self, optimizer: Optimizer) -> bool:
        """Record an optimizer that was created or is about to step. Return whether it is new."""
        if any(reference() is optimizer for reference in self._optimizers):
            return False
        self._optimizers = [reference for reference in self._optimizers if reference() is not None]
        self._optimizers.append(weakref.ref(optimizer))
        return True

    def add_found(self, named: Iterable[tuple[str, torch.Tensor]]) -> bool:
        """Record parameters that no module and no optimizer has. They replace parameters with the same names.

        Return whether a name now has a different tensor. A function's arguments are new tensors in every step. They are
        kept alive until the next step's arguments replace them.
        """
        before = {name: id(tensor) for name, tensor in self._found.items()}
        self._found |= named
        return before != {name: id(tensor) for name, tensor in self._found.items()}

    def optimizers(self) -> list[Optimizer]:
        """Return the optimizers in the order of their creation.

        An optimizer that shares its groups and state with an earlier optimizer is left out, such as the base optimizer
        in SAM's wrapper.
        """
        by_parts: dict[tuple[int, ...], Optimizer] = {}
        for optimizer in (alive for reference in self._optimizers if (alive := reference()) is not None):
            parts = (id(optimizer.state), *(id(group) for group in optimizer.param_groups))
            by_parts.setdefault(parts, optimizer)
        return list(by_parts.values())

    def named(self) -> list[NamedTensor]:
        """Return the parameters and buffers, each once, then the tensors that only the optimizers have."""
        optimized = [
            parameter
            for optimizer in self.optimizers()
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        named = list(self._roots.named_tensors(optimized))
        if not self._found:
            return named
        # A found tensor keeps the name under which it was found, and replaces a module's parameter of that name.
        names = {id(tensor): name for name, tensor in self._found.items()}
        entries = [
            entry
            for entry in named
            if entry.name not in self._found and not (id(entry.tensor) in names and entry.name.startswith(OPTIMIZED))
        ]
        entry_ids = {id(entry.tensor) for entry in entries}
        added = ((name, tensor) for name, tensor in self._found.items() if id(tensor) not in entry_ids)
        return [*entries, *(NamedTensor(name, "parameter", tensor) for name, tensor in added)]

    def named_of_roots(self) -> list[NamedTensor]:
        """Return the parameters and buffers of the root modules."""
        return list(self._roots.named_tensors([]))

    def slots(self) -> Iterator[StateSlot]:
        """Yield the places where the optimizers keep their state, by optimizer, in the order of their parameters."""
        names = {id(entry.tensor): entry.name for entry in self.named()}
        visited: set[tuple[int, int]] = set()
        for number, optimizer in enumerate(self.optimizers()):
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    place = (id(optimizer.state), id(parameter))
                    if place not in visited:
                        visited.add(place)
                        yield StateSlot(number, names[id(parameter)], parameter, group, optimizer.state)


def gradients(named: list[NamedTensor]) -> dict[str, torch.Tensor]:
    """Return the existing gradients by name, such as `gradient net.0.weight`."""
    return {
        f"gradient {entry.name}": entry.tensor.grad
        for entry in named
        if entry.kind == "parameter" and entry.tensor.grad is not None
    }

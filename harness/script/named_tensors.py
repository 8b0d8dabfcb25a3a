"""Which tensors a run's state consists of, and what they are called."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ..tape.shards import local_tensor, own_part, shard_of
from .construction import under_construction
from .parallel import plain_name, wrapper_paths

OPTIMIZED = "optimized."
"""What the name of a parameter begins with that only an optimizer is known to hold; its place there follows.
"""


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A parameter or buffer under its qualified name; `kind` is parameter or buffer.

    It is described by the part that this rank has, where it is sharded.
    """

    name: str
    kind: str
    tensor: torch.Tensor

    def describe(self) -> dict[str, Any]:
        dtype = str(self.tensor.dtype).removeprefix("torch.")
        described = {"name": self.name, "kind": self.kind, "shape": list(self.tensor.shape), "dtype": dtype}
        shard = shard_of(self.tensor)
        if shard is None:
            return described
        return described | {"shape": list(local_tensor(self.tensor).shape), "shard": asdict(shard)}


class RootModules:
    """The outermost modules that the script called, in the order of their first call.

    The first one's tensors keep their plain names; those of a later one are prefixed by the name of the
    script's variable that holds it, or by its class. Modules are not kept alive.
    """

    def __init__(self) -> None:
        self._roots: list[tuple[str, weakref.ref[torch.nn.Module], frozenset[str]]] = []
        self._seen: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._prefixes: set[str] = set()

    def add(self, module: torch.nn.Module) -> bool:
        """Take note of a called module; says whether it is a new root that holds parameters.

        One that is called while a module is built (to see the shape of what it gives) is only a part of that.
        """
        if module in self._seen or under_construction():
            return False
        self._seen.update(module.modules())
        if next(module.parameters(), None) is None:
            return False
        self._name(module)
        return True

    def expect(self, module: torch.nn.Module) -> bool:
        """Take the names of a module that was not called yet: to `add` it is still new. Says whether its
        names are."""
        return module not in self._seen and self._name(module)

    def _name(self, module: torch.nn.Module) -> bool:
        if any(root() is module for _, root, _ in self._roots):
            return False
        prefix = "" if not self._prefixes else self._free_prefix(variable_name(module))
        self._prefixes.add(prefix)
        self._roots.append((prefix, weakref.ref(module), wrapper_paths(module)))
        return True

    def classes(self) -> list[str]:
        """The classes of the roots that are still alive."""
        return [type(module).__name__ for _, root, *_ in self._roots if (module := root()) is not None]

    def _free_prefix(self, wanted: str) -> str:
        prefix, count = f"{wanted}.", 1
        while prefix in self._prefixes:
            count += 1
            prefix = f"{wanted}{count}."
        return prefix

    def named_tensors(self, optimized: Iterable[torch.Tensor]) -> Iterator[NamedTensor]:
        """Walk the roots' parameters and buffers, each once, then what only the optimizers hold."""
        seen: set[int] = set()
        for prefix, reference, wrappers in self._roots:
            module = reference()
            if module is None:
                continue
            for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
                for name, tensor in named:
                    if id(tensor) not in seen:
                        seen.add(id(tensor))
                        yield NamedTensor(prefix + plain_name(name, wrappers), kind, tensor)
        for index, tensor in enumerate(optimized):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield NamedTensor(f"{OPTIMIZED}{index}", "parameter", tensor)


def put(there: torch.Tensor, value: torch.Tensor) -> bool:
    """Copy a value into a tensor of the script's, whose views and aliases stay what they are; says whether it
    fits.

    Past autograd: a value that the script computed from the tensor before can still be differentiated.
    """
    there, value = local_tensor(there), own_part(there, value)
    if is_lazy(there) or there.is_meta or there.layout != torch.strided or there.shape != value.shape:
        return False
    try:
        there.data.copy_(value)
    except RuntimeError:  # expanded memory, which cannot be written to
        return False
    return True


def variable_name(module: torch.nn.Module) -> str:
    """The name of the script's global variable that holds the module, else its class in lower case."""
    for name, value in vars(sys.modules["__main__"]).items():
        if value is module:
            return name
    return type(module).__name__.lower()

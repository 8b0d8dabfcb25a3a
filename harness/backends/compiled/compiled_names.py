"""What the script calls its parameters and buffers."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import torch

from ..capture_request import NamedTensors


class ScriptNames:
    """Bindings by the identity of the tensor: those that `named_tensors` gives, else those of the adopted modules."""

    def __init__(self, named_tensors: NamedTensors | None = None) -> None:
        self._named_tensors = named_tensors
        self._modules: list[weakref.ref[torch.nn.Module]] = []

    def adopt(self, module: torch.nn.Module) -> None:
        """Take the names of a module's tensors, as the module itself has them when `torch.compile` has wrapped it."""
        self._modules.append(weakref.ref(getattr(module, "_orig_mod", module)))

    def by_identity(self) -> dict[int, str]:
        """The bindings now, a tensor with several names by its first one."""
        found: dict[int, str] = {}
        for binding, tensor in self._all():
            found.setdefault(id(tensor), binding)
        return found

    def _all(self) -> Iterator[tuple[str, torch.Tensor]]:
        if self._named_tensors is not None:
            for binding, tensor in self._named_tensors().items():
                if binding.startswith(("parameter ", "buffer ")):
                    yield binding, tensor
            return
        for module in (one() for one in self._modules):
            if module is not None:
                yield from ((f"parameter {name}", one) for name, one in module.named_parameters())
                yield from ((f"buffer {name}", one) for name, one in module.named_buffers())

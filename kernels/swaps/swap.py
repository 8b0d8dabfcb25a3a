"""One swap, resolved: the kernel found, its code imported at the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..registry import Kernel, KernelRegistry
from .find import find_kernel
from .request import SwapRequest
from .sites import Site, Sites
from .target import Target


@dataclass(slots=True)
class Swap:
    """A request and its kernel. `number` is its place among the swaps of its mode, and in the counts.

    `alternates` are the kernels of the same name for ops that take over the op's part in other modes; `watched`
    counts the calls whose arguments were compared before and after.
    """

    number: int
    request: SwapRequest
    kernel: Kernel
    alternates: Mapping[str, Kernel] = field(default_factory=dict)
    watched: int = 0
    _functions: dict[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def is_aten(self) -> bool:
        return self.kernel.of_any_op and self.kernel.name == "aten"

    @property
    def scoped(self) -> bool:
        return self.request.module is not None or self.request.occurrence is not None

    def serves(self, target: Target) -> bool:
        """Whether the kernel, or the one of its name for an op that takes over the op's part, computes
        `target`."""
        return target.functional_name in self._functions or self._kernel_for(target) is not None

    def function(self, target: Target) -> Callable[..., Any]:
        """What computes the functional form of `target`, which the swap must serve."""
        name = target.functional_name
        if name not in self._functions:
            kernel = self._kernel_for(target)
            assert kernel is not None
            self._functions[name] = kernel.load(name)
        return self._functions[name]

    def _kernel_for(self, target: Target) -> Kernel | None:
        op = target.functional_name.partition(".")[0]
        return self.kernel if op == self.request.op.partition(".")[0] else self.alternates.get(op)

    def covers(self, module: str | None) -> bool:
        wanted = self.request.module
        return wanted is None or module == wanted or (module or "").startswith(f"{wanted}.")


def resolve(requests: Sequence[SwapRequest], registry: KernelRegistry) -> list[Swap]:
    """Find the kernel of each request. Raises KernelNotFound, and for a user's kernel what `user_kernel`
    raises."""
    return [
        Swap(number, one, find_kernel(one, registry), alternates(one, registry))
        for number, one in enumerate(requests)
    ]


def alternates(request: SwapRequest, registry: KernelRegistry) -> dict[str, Kernel]:
    """The kernels with the request's name of the ops that its op stands for, where they have one."""
    found = {}
    for op in registry.operation(request.op).also:
        for kernel in registry.kernels(op):
            if kernel.name == request.kernel:
                found[op] = kernel
    return found


def choose(swaps: Sequence[Swap], site: Site, sites: Sites) -> Swap | None:
    """The swap for an execution at `site`: of those that cover it the one with the narrowest scope."""
    chosen = None
    for swap in sorted(swaps, key=_breadth):
        if not swap.covers(site.module):
            continue
        wanted = swap.request.occurrence
        if wanted is None:
            return chosen or swap
        if sites.occurrence(swap.number) == wanted and chosen is None:
            chosen = swap
    return chosen


def _breadth(swap: Swap) -> tuple[bool, int]:
    """Sorts occurrences before modules, inner modules before outer ones, and everything last."""
    module = swap.request.module
    return swap.request.occurrence is None, -(module.count(".") + 1 if module else 0)

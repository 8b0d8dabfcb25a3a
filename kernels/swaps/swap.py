"""One swap with its kernel, the choice of the swap for a call, and the aten overloads that a swap replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numdrift.harness.errors import KernelNotFound
from numdrift.harness.torch_private.operators import (
    arguments_of,
    find_overload,
    find_packet,
    is_composite,
    overloads_of,
    returns_something,
    returns_view,
)

from ..expectation import tensors_in
from ..registry import Kernel, KernelRegistry
from .request import SwapRequest, find_kernel
from .sites import CallSite, Sites


@dataclass(slots=True)
class Swap:
    """A request and its kernel.

    number: its index among the swaps of its mode, and among the records of the counts
    alternates: the kernels of the same name for ops that replace the op in other modes
    watched: the number of calls whose arguments were compared before and after the call
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
        """Check whether the kernel, or its namesake for an op that replaces the op in other modes, computes
        `target`."""
        return target.functional_name in self._functions or self._kernel_for(target) is not None

    def function(self, target: Target) -> Callable[..., Any]:
        """Return the function that computes the functional form of `target`; `serves` must be true for `target`."""
        name = target.functional_name
        if name not in self._functions:
            kernel = self._kernel_for(target)
            assert kernel is not None
            self._functions[name] = kernel.load(name)
        return self._functions[name]

    def _kernel_for(self, target: Target) -> Kernel | None:
        op = target.functional_name.partition(".")[0]
        return self.kernel if op == self.request.op.partition(".")[0] else self.alternates.get(op)


def resolve(requests: Sequence[SwapRequest], registry: KernelRegistry) -> list[Swap]:
    """Find the kernel of each request. Raises KernelNotFound, and for a user's kernel the errors of `user_kernel`."""
    swaps = []
    for number, request in enumerate(requests):
        replacing_ops = registry.operation(request.op).also
        of_same_name = (
            kernel for op in replacing_ops for kernel in registry.kernels(op) if kernel.name == request.kernel
        )
        alternates = {kernel.op: kernel for kernel in of_same_name}
        swaps.append(Swap(number, request, find_kernel(request, registry), alternates))
    return swaps


def choose(swaps: Sequence[Swap], site: CallSite, sites: Sites) -> Swap | None:
    """Choose the swap for a call at `site`: of the swaps that cover it, the one with the narrowest scope."""

    def breadth(swap: Swap) -> tuple[bool, int]:
        """Sort occurrences before modules, inner modules before outer ones, and unscoped swaps last."""
        module = swap.request.module
        return swap.request.occurrence is None, -(module.count(".") + 1 if module else 0)

    chosen = None
    for swap in sorted(swaps, key=breadth):
        module, wanted = swap.request.module, swap.request.occurrence
        if module is not None and site.module != module and not (site.module or "").startswith(f"{module}."):
            continue
        if wanted is None:
            return chosen or swap
        # No break after a choice, because each swap counts occurrences at every call that it covers.
        if sites.occurrence(swap.number) == wanted and chosen is None:
            chosen = swap
    return chosen


# The overloads of aten that a swap of an op replaces, and the way in which each calls a kernel of the op.
#
# A kernel computes the functional form. The in-place form (`addcmul_`) copies the result into the first argument, and
# the forms with `out=` copy it into the arguments passed there.

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Target:
    """One overload that a swap replaces.

    functional: the overload whose results the op's kernels compute
    functional_name: the name of `functional` (`lerp.Scalar`), the first argument of kernels of any op
    composite: whether torch composes the overload from other ops above autograd
    writes: the arguments that receive the results; if there are none, the op returns the kernel's results
    """

    op: str
    overload: Any
    functional: Any
    functional_name: str
    composite: bool
    writes: tuple[str, ...] = ()

    def call(self, kernel: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a functional kernel in the form of this overload."""
        if not self.writes:
            return kernel(*args, **kwargs)
        outputs = [value for name, value in kwargs.items() if name in self.writes] or [args[0]]
        named = {name: value for name, value in kwargs.items() if name not in self.writes}
        results = kernel(*args, **named)
        for output, result in zip(tensors_in(outputs), tensors_in(results), strict=True):
            # as in torch, an `out=` of a different shape is resized; the first argument never is
            if output is not args[0] and output.shape != result.shape:
                output.resize_(result.shape)
            output.copy_(result)
        if not returns_something(self.overload):
            return None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def targets_of(op: str, also: Sequence[str] = ()) -> list[Target]:
    """Return every overload that a swap of `op` (or of one overload, `sum.dim_IntList`) replaces.

    Raises KernelNotFound, with the nearest name, if aten has no such op.
    """
    name, _, wanted = op.partition(".")
    find_packet(name)
    targets = [*_family(op, name), *(target for replacing_op in also for target in _family(op, replacing_op))]
    if not targets:
        raise KernelNotFound(f"{op} cannot be swapped: it takes no tensor, or only returns a view of one")
    if not wanted:
        return targets
    chosen = [target for target in targets if target.functional is find_overload(op)]
    if not chosen:
        raise KernelNotFound(f"{op} cannot be swapped: it is not a functional overload of {name}")
    return chosen


def _family(op: str, name: str) -> Iterator[Target]:
    """Yield the targets among the overloads of `name` and of its in-place form, for a swap of `op`."""

    def computes(overload: Any) -> bool:  # takes tensors, and returns more than views of them
        takes_tensors = any("Tensor" in argument.kind for argument in arguments_of(overload))
        return takes_tensors and not returns_view(overload)

    def signature(overload: Any, without: Sequence[str] = ()) -> list[tuple[str, str]]:
        return [(argument.name, argument.kind) for argument in arguments_of(overload) if argument.name not in without]

    def made(overload: Any, functional: Any, writes: tuple[str, ...] = ()) -> Target:
        functional_name = str(functional).removeprefix("aten.")
        return Target(op, overload, functional, functional_name, is_composite(overload), writes)

    def written(overload: Any) -> list[str]:
        return [argument.name for argument in arguments_of(overload) if argument.writes]

    own = list(filter(computes, overloads_of(name)))
    functionals = [overload for overload in own if not written(overload)]
    for overload in [*own, *filter(computes, overloads_of(f"{name}_"))]:
        writes = written(overload)
        if not writes:
            yield made(overload, overload)
            continue
        outputs = [argument.name for argument in arguments_of(overload) if argument.writes and argument.keyword_only]
        same = [functional for functional in functionals if signature(functional) == signature(overload, outputs)]
        if same and (outputs or len(writes) == 1):
            yield made(overload, same[0], tuple(outputs or writes))
        elif not outputs and op.partition(".")[0] == str(overload).split(".")[1]:
            # The kernels of an op that itself writes (`_fused_adam_`) write to the arguments, too.
            yield made(overload, overload)

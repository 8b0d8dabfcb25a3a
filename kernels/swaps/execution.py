"""Calls of swapped ops: the choice of the kernel, the checks of its results, and the counts of its calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch

from numdrift.harness.errors import KernelError, NumdriftError
from numdrift.harness.torch_private.compiler.compiling import is_being_traced, is_traced
from numdrift.harness.torch_private.deferred.deferred_devices import DEFERRED_DEVICES
from numdrift.harness.torch_private.dispatching import functions_transformed, swaps_are_left_out
from numdrift.harness.torch_private.operators import arguments_of, written_names

from ..expectation import Expectations, ExpectedTensor, tensors_in
from ..registry import ANY_DEVICE, Kernel
from .counts import CountsFile
from .sites import CallSite, Sites, traced_site
from .swap import Swap, Target, choose

Arguments = Sequence[Any]
Keywords = Mapping[str, Any]

CALLS_WATCHED = 8
"""The number of calls of a user's kernel whose arguments are compared before and after the call."""

MODULES_NAMED = 8
"""The maximum number of modules that a message names."""


class SwapObserver(Protocol):
    """An observer of the calls of some ops."""

    def wants(self, op: str, site: CallSite) -> bool: ...

    def called(self, op: str, kernel: str, site: CallSite, args: Arguments, kwargs: Keywords, result: Any) -> None: ...


class SwappedCall:
    """One call of a target. `original` is torch's own kernel for it, `tensors` are the tensors in the arguments."""

    __slots__ = ("args", "kwargs", "lazy", "original", "target", "tensors", "traced")

    def __init__(self, target: Target, original: Callable[..., Any], args: Arguments, kwargs: Keywords) -> None:
        self.target = target
        self.original = original
        self.args = args
        self.kwargs = kwargs
        self.tensors = [*tensors_in(args), *(tensor for value in kwargs.values() for tensor in tensors_in(value))]
        self.traced = any(map(is_traced, self.tensors))
        self.lazy = any(tensor.device.type in DEFERRED_DEVICES for tensor in self.tensors)

    def by_torch(self) -> Any:
        return self.original(*self.args, **self.kwargs)


class _Running(threading.local):
    """The ops whose kernels are running on this thread, outermost first."""

    def __init__(self) -> None:
        self.targets: list[Target] = []


class SwapExecution:
    """Runs calls of swapped ops. Calls that a kernel makes itself reach torch's own kernels."""

    def __init__(self, swaps: Sequence[Swap], sites: Sites, counts: CountsFile) -> None:
        self.observer: SwapObserver | None = None
        self._sites = sites
        self._counts = counts
        self._swaps: dict[str, list[Swap]] = {}
        for swap in swaps:
            self._swaps.setdefault(swap.request.op, []).append(swap)
        self.modules: dict[str, dict[str, None]] = {
            op: {} for op, op_swaps in self._swaps.items() if any(swap.scoped for swap in op_swaps)
        }
        self._running = _Running()
        self._expectations = Expectations()

    def dispatched(self, call: SwappedCall) -> Any:
        """Execute a call that comes from the dispatcher."""
        # torch executes the ops that a kernel calls. Inside a composite op, other ops may be swapped, but not the op
        # itself.
        running = self._running.targets
        inside = running and (not running[-1].composite or any(target.op == call.target.op for target in running))
        # Kernels compute floating-point tensors; torch computes anything else (for example, a count or a mask).
        if inside or swaps_are_left_out() or not any(tensor.is_floating_point() for tensor in call.tensors):
            return call.by_torch()
        # A compiler inspects the call's result before it traces the call. For this inspection, torch's own kernel
        # suffices, because its results have the same shapes and dtypes.
        if call.traced and not is_being_traced():
            return call.by_torch()
        site = traced_site() if call.traced else self._sites.here()
        self.called_at(call.target.op, site)
        swap = choose(self._swaps.get(call.target.op, ()), site, self._sites)
        return self.run(swap, call, site)

    def called_at(self, op: str, site: CallSite) -> None:
        """Record the modules that call an op, if the op is swapped only at some sites. If the run reaches none of these
        sites, the modules are reported."""
        modules = self.modules.get(op)
        if modules is not None and site.module is not None and len(modules) < MODULES_NAMED:
            modules[site.module] = None

    def run(self, swap: Swap | None, call: SwappedCall, site: CallSite) -> Any:
        """Run the call with the swap's kernel (None: torch's own), count it and report it to the observer."""
        op, observer = call.target.op, self.observer
        self._running.targets.append(call.target)
        try:
            if observer is None or not observer.wants(op, site) or call.traced:
                return call.by_torch() if swap is None else self._swapped(swap, call, site)
            args, kwargs = call.args, call.kwargs
            if call.target.writes:  # the observer receives the arguments as they were before the call
                args = mapped(list(args), torch.Tensor.clone)
                kwargs = {name: mapped(value, torch.Tensor.clone) for name, value in kwargs.items()}
            result = call.by_torch() if swap is None else self._swapped(swap, call, site)
            observer.called(op, "aten" if swap is None else swap.kernel.name, site, args, kwargs, result)
            return result
        finally:
            self._running.targets.pop()

    def _swapped(self, swap: Swap, call: SwappedCall, site: CallSite) -> Any:
        if not swap.serves(call.target):
            return call.by_torch()
        if call.traced:
            self._counts.add(swap.number, "traced")
            return call.target.call(swap.function(call.target), call.args, call.kwargs)
        self._counts.add(swap.number, site.phase)
        if swap.is_aten:
            return call.by_torch()
        refuse_unsupported(swap.kernel, call.tensors)
        name = f"{swap.request.op}={swap.kernel.name}"

        def conforming(*args: Any, **kwargs: Any) -> Any:
            expected = self._expectations.of(call.target.functional, args, kwargs)
            return conform(name, function(*args, **kwargs), expected, strided=not call.lazy)

        # The first calls of a user's kernel are watched; the shipped kernels write to no argument.
        watched: AbstractContextManager[None] = nullcontext()
        if not call.lazy and swap.kernel.path and swap.watched < CALLS_WATCHED:
            swap.watched += 1
            watched = arguments_left_alone(name, call.target, call.args, call.kwargs)
        self._counts.enter(swap.number)
        try:
            function = swap.function(call.target)
            if call.lazy and not call.target.composite and not swap.kernel.needs_compiler:
                # The lazy core removes views and mutations before it passes the tensors on, so the kernel must use
                # none.
                function = _functional(function)
            with watched:
                return call.target.call(conforming, call.args, call.kwargs)
        except NumdriftError:
            raise
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            shapes = ", ".join(text_of(tensor.shape, tensor.dtype) for tensor in call.tensors)
            description = f"raised {type(error).__name__}: {first}".rstrip(": ")
            raise KernelError(name, f"{description} (called with {shapes})") from error
        finally:
            self._counts.leave(swap.number)


def _functional(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a form of the function that uses no views and no mutations, even under a dispatch mode."""
    transformed = torch.func.functionalize(function, remove="mutations_and_views")

    def functional(*args: Any, **kwargs: Any) -> Any:
        with functions_transformed():
            return transformed(*args, **kwargs)

    return functional


# The checks of a kernel against the op that it replaces: results of the same shapes and dtypes, unchanged arguments.


def conform(kernel: str, result: Any, expected: Sequence[ExpectedTensor], *, strided: bool, cast: bool = False) -> Any:
    """Return the result with the expected strides (`strided`) and dtypes (`cast`).

    Raises KernelError if the shapes, the dtypes (without `cast`) or the number of tensors are not as expected.
    """
    returned_tensors = list(tensors_in(result))
    if len(returned_tensors) != len(expected):
        raise KernelError(kernel, f"returned {len(returned_tensors)} tensors where the op returns {len(expected)}")
    for index, (returned, wanted) in enumerate(zip(returned_tensors, expected, strict=True)):
        if tuple(returned.shape) != wanted.shape or (returned.dtype != wanted.dtype and not cast):
            place = f" as result {index}" if len(expected) > 1 else ""
            raise KernelError(
                kernel,
                f"returned {text_of(returned.shape, returned.dtype)}{place} where the op returns "
                f"{text_of(wanted.shape, wanted.dtype)}",
            )
    if not strided:
        return result
    wanted_in_order = iter(expected)

    def laid_out(tensor: torch.Tensor) -> torch.Tensor:
        wanted = next(wanted_in_order)
        if tensor.dtype == wanted.dtype and (tensor.stride() == wanted.stride or tensor.numel() == 0):
            return tensor
        return torch.empty_strided(wanted.shape, wanted.stride, dtype=wanted.dtype, device=tensor.device).copy_(tensor)

    return mapped(result, laid_out)


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `change` to a tensor, or to the tensors in a list or tuple."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        changed = [mapped(element, change) for element in value]
        return changed if isinstance(value, list) else tuple(changed)
    return value


@contextmanager
def arguments_left_alone(kernel: str, target: Target, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Raise KernelError at the end of the context if the kernel wrote to an argument that the op does not write to."""
    # Values are compared, because torch does not count writes below autograd.
    written = written_names(target.overload)
    names = [argument.name for argument in arguments_of(target.overload)]
    named = [*zip(names, args, strict=False), *kwargs.items()]
    watched = [(name, tensor) for name, value in named if name not in written for tensor in tensors_in(value)]
    before = [tensor.detach().clone() for _, tensor in watched]
    yield
    for (name, tensor), copy in zip(watched, before, strict=True):
        if not bool(((tensor == copy) | (tensor.isnan() & copy.isnan())).all()):
            raise KernelError(kernel, f"wrote to its argument {name!r}, which the op leaves unchanged")


def refuse_unsupported(kernel: Kernel, tensors: Sequence[torch.Tensor]) -> None:
    """Raise KernelError for a floating-point dtype or a device that the kernel does not support."""
    for tensor in tensors:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.is_floating_point() and not kernel.supports(dtype, tensor.device.type):
            devices = "" if kernel.devices == ANY_DEVICE else f" on {', '.join(kernel.devices)}"
            raise KernelError(
                f"{kernel.op}={kernel.name}",
                f"computes {', '.join(kernel.dtypes)}{devices}, but the script calls it with {dtype} on "
                f"{tensor.device.type}",
            )


def text_of(shape: Sequence[int], dtype: torch.dtype) -> str:
    """Return the dtype and shape of a tensor as text, for example `float32[3, 4]`."""
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"

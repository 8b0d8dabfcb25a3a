"""The swaps of one mode, in the script's process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numdrift.harness.errors import NotAvailable
from numdrift.harness.torch_private.registered_kernels import Overrides, dispatch_key, original_kernel

from ..native import library
from ..registry import ANY_DEVICE, Kernel, KernelRegistry
from .composites import WholeComposites
from .counts import CountsFile, SwapCounts
from .decompositions import SwappedDecompositions
from .execution import SwapExecution, SwapObserver, SwappedCall
from .request import SwapRequest
from .sites import Sites
from .swap import Target, resolve, targets_of


class Swaps:
    """Kernels that replace others from `install` to `close`.

    With empty `requests` nothing changes. `counts` is the file in which calls are counted (None: only in memory).
    """

    def __init__(self, requests: Sequence[SwapRequest], registry: KernelRegistry, counts: Path | None = None) -> None:
        self.requests = requests
        self.sites = Sites()
        self.observed: tuple[str, ...] = ()
        self._registry = registry
        self._swaps = resolve(requests, registry)
        self._counts = CountsFile(counts, len(self._swaps))
        self._execution = SwapExecution(self._swaps, self.sites, self._counts)
        self._overrides: Overrides | None = None
        self._decompositions: SwappedDecompositions | None = None
        self._composites: WholeComposites | None = None

    def observe(self, ops: Sequence[str], observer: SwapObserver) -> None:
        """Report every call of these ops to `observer`, whether they are swapped or not."""
        self.observed = tuple(ops)
        self._execution.observer = observer

    def install(self, device: str, *, compiled: bool = False) -> None:
        """Swap the ops that are dispatched on `device`; with `compiled`, also the ops that compilers trace.

        If a swap names a module, or ops are observed, hooks follow the modules. With `compiled` they do not, because a
        compiler would trace the hooks. Raises NotAvailable, KernelNotFound, and UsageError for `decompose.<op>=off` of
        an op that is not decomposed.
        """
        ops = dict.fromkeys([*(swap.request.op for swap in self._swaps), *self.observed])
        if not ops:
            return
        kind = device.partition(":")[0]
        self._refuse_devices(kind)
        if compiled:
            self._install_decompositions()
        elif self.observed or any(swap.request.module is not None for swap in self._swaps):
            self.sites.follow_modules()
        self._overrides = Overrides()
        for op in ops:
            for target in self._targets(op):
                self._override(target, dispatch_key(kind))

    def _install_decompositions(self) -> None:
        if not self._swaps:
            return
        decompositions = SwappedDecompositions(self._execution)
        decompositions.check(self._swaps)
        for op in dict.fromkeys(swap.request.op for swap in self._swaps):
            swaps = [swap for swap in self._swaps if swap.request.op == op]
            for target in self._targets(op):
                decompositions.replace(target, swaps)
        decompositions.install()
        self._decompositions = decompositions
        whole = {swap.request.op for swap in self._swaps if swap.request.from_decomposition}
        # An op that Inductor itself decomposes is opaque by now. torch decomposes the other ops before Inductor sees
        # them, so each of their calls must be folded into one node again.
        composites = frozenset(op for op in whole if not decompositions.takes_apart(op))
        if composites:
            self._composites = WholeComposites(composites)
            self._composites.install()

    def step_ended(self) -> None:
        self.sites.step_ended()

    def backward_ended(self) -> None:
        self.sites.backward_ended()

    def describe(self, accelerator: str | None = None) -> list[dict[str, str]]:
        """Return each swap in the manifest's form; `computed_by` says whether C code or torch operations compute it.

        `accelerator` is the device on which the mode computes, or None for the CPU.
        """
        return [
            {
                "swap": str(swap.request),
                "op": swap.request.op,
                "kernel": swap.kernel.name,
                "formula": swap.kernel.formula,
                "source": swap.kernel.source,
                "computed_by": _computed_by(swap.kernel, accelerator),
            }
            for swap in self._swaps
        ]

    def notices(self, accelerator: str | None = None) -> list[str]:
        """Return notices for readers of the run.

        A notice says that torch operations replace C code that is not available, or that a user's C code computes an
        accelerator's tensors on the CPU.
        """
        native = [swap for swap in self._swaps if swap.kernel.native]
        if accelerator is not None:
            copies = f"its tensors are copied from {accelerator} to the CPU, and its result is copied back"
            own = [swap for swap in native if swap.kernel.needs_compiler]
            return [f"{swap.request} is computed by C code on the CPU: {copies}" for swap in own]
        if not native or library.is_native():
            return []
        return [f"{native[0].request} is computed by {library.status()}"]

    def modules(self) -> dict[str, list[str]]:
        """Return, for each op that is swapped only at some sites, the modules that called it."""
        return {op: list(modules) for op, modules in self._execution.modules.items()}

    def counts(self) -> list[SwapCounts]:
        """Return the calls so far, one entry per request."""
        return self._counts.read()

    def forget(self) -> None:
        """Stop counting in the file, because this process is a fork of the counted process."""
        self._counts.forget()

    def close(self) -> None:
        """Restore everything."""
        if self._overrides is not None:
            self._overrides.close()
        if self._decompositions is not None:
            self._decompositions.close()
        if self._composites is not None:
            self._composites.close()
        self.sites.close()

    def _targets(self, op: str) -> list[Target]:
        return targets_of(op, self._registry.operation(op.partition(".")[0]).also)

    def _override(self, target: Target, key: str) -> None:
        assert self._overrides is not None
        # A form that writes to its arguments keeps torch's kernel if torch composes it above autograd.
        if target.writes and target.composite:
            return
        try:
            original = original_kernel(target.overload, key)
        except NotAvailable:  # torch has no kernel for this key, so no call can be dispatched to it
            return

        self._overrides.replace(
            target.overload,
            "CompositeImplicitAutograd" if target.composite else key,
            self._dispatched(target, original),
        )
        if self._composites is not None and self._composites.covers(target):
            self._composites.replace_python_kernels(target, functools.partial(self._dispatched, target))

    def _dispatched(self, target: Target, original: Callable[..., Any]) -> Callable[..., Any]:
        if self._composites is not None and self._composites.covers(target):
            original = self._composites.followed(target, original)

        def dispatched(*args: Any, **kwargs: Any) -> Any:
            return self._execution.dispatched(SwappedCall(target, original, args, kwargs))

        return dispatched

    def _refuse_devices(self, device: str) -> None:
        for swap in self._swaps:
            if swap.kernel.devices != ANY_DEVICE and device not in swap.kernel.devices:
                raise NotAvailable(
                    f"{swap.request} on {device}",
                    f"the kernel runs on {', '.join(swap.kernel.devices)}",
                    "choose another kernel, or a mode on that device",
                )


def _computed_by(kernel: Kernel, accelerator: str | None) -> str:
    if not kernel.native:
        return "its own code"
    if accelerator is None:
        return library.status()
    return "C code on the CPU" if kernel.needs_compiler else f"torch formulas (its tensors are on {accelerator})"

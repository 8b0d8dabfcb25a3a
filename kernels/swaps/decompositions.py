"""Swaps inside compiled graphs: where a compiler would decompose a swapped op, it finds one opaque op instead.

The opaque op is `numdrift::<op>_<overload>`. Its arguments are the number of the place in the graph, and the arguments
of the aten op. In Inductor, a swapped graph therefore never has the same cache key as an unswapped graph. The kernel is
chosen while the compiler traces, by the module path of the traced op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numdrift.harness.errors import UsageError
from numdrift.harness.torch_private import operators
from numdrift.harness.torch_private.compiler.compiling import (
    DecompositionTable,
    inductor_decompositions,
    replace_inductor_decompositions,
)
from numdrift.harness.torch_private.operators import overloads_of, schema_text
from numdrift.harness.torch_private.patches import Patches
from numdrift.harness.torch_private.registered_kernels import OpaqueOps

from ..expectation import Expectations, on_meta
from .composites import is_composite
from .execution import SwapExecution, SwappedCall, conform
from .sites import CallSite, Sites, traced_site
from .swap import Swap, Target, choose

Decomposition = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TracedPlace:
    """One place in a compiled graph where a swap takes effect."""

    swap: Swap
    site: CallSite


class SwappedDecompositions:
    """Inductor's decompositions with those of some ops replaced, until `close`."""

    def __init__(self, execution: SwapExecution) -> None:
        self._execution = execution
        # a copy; changes to it take effect from `install` to `close`
        self._table = inductor_decompositions()
        self._sites = Sites()
        self._places: list[TracedPlace] = []
        self._changed: list[str] = []
        self._opaque_ops = OpaqueOps()
        self._promised = Expectations(on_meta)
        self._patches = Patches("swapped decompositions")

    def check(self, swaps: Sequence[Swap]) -> None:
        """Raise UsageError for `decompose.<op>=off` of an op that Inductor never decomposes."""
        for swap in swaps:
            op = swap.request.op
            apart = self.takes_apart(op) or is_composite(op)
            if swap.request.from_decomposition and not apart:
                raise UsageError(
                    f"{swap.request}: Inductor does not decompose aten.{op}; leave the key out, or "
                    f"choose a kernel with kernel.{op}=..."
                )

    def takes_apart(self, op: str) -> bool:
        """Check whether it is Inductor itself that decomposes an op, and not a part of torch above Inductor."""
        overloads = overloads_of(op.partition(".")[0])
        return any(overload in self._table and not operators.is_composite(overload) for overload in overloads)

    def replace(self, target: Target, swaps: Sequence[Swap]) -> None:
        """Route calls of the functional overload of `target` to the swap that covers their site, if there is one."""
        if target.writes or target.composite:
            return
        before = self._table.get(target.overload)
        name = str(target.overload).removeprefix("aten.").replace(".", "_")
        arguments = schema_text(target.overload).partition("(")[2]

        def run(place: int, *args: Any, **kwargs: Any) -> Any:
            traced = self._places[place]
            result = self._execution.run(traced.swap, SwappedCall(target, target.overload, args, kwargs), traced.site)
            # The surrounding code was generated for the strides and dtypes that the meta kernel returned, so this
            # kernel's results must have the same strides and dtypes.
            expected = self._promised.of(target.overload, args, kwargs)
            return conform(str(traced.swap.request), result, expected, strided=True, cast=True)

        def fake(place: int, *args: Any, **kwargs: Any) -> Any:
            return target.overload(*args, **kwargs)

        opaque: Decomposition = self._opaque_ops.define(name, f"(int place, {arguments}", run, fake)

        def decompose(*args: Any, **kwargs: Any) -> Any:
            site = traced_site()
            swap = choose(swaps, site, self._sites)
            self._execution.called_at(target.op, site)
            if swap is None or not swap.serves(target):
                return NotImplemented if before is None else before(*args, **kwargs)
            self._places.append(TracedPlace(swap, site))
            return opaque(len(self._places) - 1, *args, **kwargs)

        self._table[target.overload] = decompose
        self._changed.append(str(target.overload))

    def install(self) -> None:
        table = DecompositionTable(self._table, sorted(self._changed), self._sites.step_ended)
        self._patches.also(replace_inductor_decompositions(table))

    def close(self) -> None:
        self._patches.undo()
        self._opaque_ops.close()

"""Functions executed in a mode with some swaps, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from numdrift.harness.torch_private.deferred.lazy import start_lazy_backend
from numdrift.kernels.registry import KernelRegistry, built_in
from numdrift.kernels.swaps.counts import SwapCounts
from numdrift.kernels.swaps.engine import Swaps
from numdrift.kernels.swaps.request import swap_requests


@dataclass(frozen=True, slots=True)
class Executed:
    """What a function returned, on the CPU, and how often each swap ran."""

    results: tuple[torch.Tensor, ...]
    counts: list[SwapCounts]


Execute = Callable[..., Executed]


@pytest.fixture(scope="session")
def registry() -> KernelRegistry:
    return built_in()


@pytest.fixture
def execute(registry: KernelRegistry) -> Iterator[Execute]:
    """Execute `function(*inputs)` with `kernels` swapped in; it returns a tensor or a tuple of them.

    In the mode compile the function is compiled as a whole, or (`whole=False`) compiles what it wants itself.
    """
    opened: list[Swaps] = []

    def run(
        mode: str,
        kernels: Mapping[str, str],
        function: Callable[..., Any],
        *inputs: torch.Tensor,
        kernel_registry: KernelRegistry = registry,
        decompose: Mapping[str, str] | None = None,
        whole: bool = True,
    ) -> Executed:
        swaps = Swaps(swap_requests(kernels, decompose or {}), kernel_registry)
        opened.append(swaps)
        device = "lazy" if mode == "lazy" else "cpu"
        if mode == "lazy":
            start_lazy_backend()
        swaps.install(device, compiled=mode == "compile")
        if mode == "compile":
            torch._dynamo.reset()
            function = torch.compile(function) if whole else function
        moved = [tensor.detach().to(device).requires_grad_(tensor.requires_grad) for tensor in inputs]
        results = function(*moved)
        listed = results if isinstance(results, (list, tuple)) else [results]
        values = tuple(tensor.detach().cpu().clone() for tensor in listed)
        swaps.close()
        return Executed(values, swaps.counts())

    yield run
    for swaps in opened:
        swaps.close()

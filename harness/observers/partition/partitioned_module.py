"""`numdrift.partition`: a module of which a part runs on a mode's backend."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import UsageError, nearest
from ...hooks.backend_adapter import Adapter, adapter_for
from ...records.mode_spec import ModeSpec, parse_mode
from ...records.partition_record import OF_PROCESS, GraphPartition, PartitionConfig, Partitioning, refuse_swaps
from ...torch_private.partitioner import call_by_backend
from .partition_backend import PartitioningBackend, log_graph
from .partition_journal import Part, PartCall


class PartitionedModule(torch.nn.Module):
    """Executes `module` in parts; its parameters are the module's own, so it trains as the module does.

    `partitioning` has the graphs and the places of their operators.
    """

    def __init__(self, module: torch.nn.Module, backend: PartitioningBackend) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self._call = call_by_backend(module, backend)
        self._backend = backend

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    @property
    def calls(self) -> Mapping[Part, PartCall]:
        """The module's calls that were met."""
        return self._backend.calls

    @property
    def partitioning(self) -> Partitioning:
        return self._backend.partitioning


def partition(
    module: torch.nn.Module,
    inputs: Any,
    mode: str = "compile",
    config: PartitionConfig | None = None,
) -> PartitionedModule:
    """Put what the mode's backend supports of a module there, and the rest on the CPU.

        net = numdrift.partition(Net(), torch.rand(32, 784), config=PartitionConfig(max_subgraph_count=2))
        net(x).sum().backward()

    `inputs` are what the module is called with: a tensor, a sequence of arguments, or a mapping of named
    ones. The module is called with them once, where its buffers and the random generator are put back. Other
    shapes, training and evaluation have partitions of their own, made when they are first needed. The logger
    `numdrift.partition` tells of each at INFO.

    Raises PartitionError (a ValueError) where a limit of `config` is broken, UsageError for an operator to
    partition that the module does not have, ModeError, and NotAvailable for a backend that is not here.
    """
    spec = parse_mode(mode)
    for key in OF_PROCESS:
        if key in spec.to_json():
            raise UsageError(f"mode {mode!r}: the key {key!r} is of a process; leave it out to partition a module")
    return partitioned(module, inputs, adapter_of(spec), config or PartitionConfig(), log_graph)


def partitioned(
    module: torch.nn.Module,
    inputs: Any,
    adapter: Adapter,
    config: PartitionConfig,
    report: Callable[[GraphPartition], None],
    only: frozenset[Part] | None = None,
) -> PartitionedModule:
    """Partition as `partition` does, with a backend that is available. `report` receives each graph; with `only` all
    calls but these go to the CPU."""
    elsewhere = {tensor.device.type for tensor in [*module.parameters(), *module.buffers()]} - {"cpu"}
    if elsewhere:
        raise UsageError(
            f"{type(module).__name__} is on {' and '.join(sorted(elsewhere))}; give a module on the CPU: the backend's "
            "part is moved when it runs"
        )
    try:
        file = inspect.getfile(type(module))
    except (TypeError, OSError):  # a class that is in no file: one of this folder represents it
        file = str(Path.cwd() / "__main__")
    backend = PartitioningBackend(adapter, config, type(module).__name__, file, report, only=only)
    result = PartitionedModule(module, backend)
    args, kwargs = arguments_of(inputs)
    # The first call captures and partitions. It is no call of the training: buffers and the generator are put back.
    before = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with torch.random.fork_rng(devices=[]):
        result(*args, **kwargs)
    with torch.no_grad():
        for buffer, value in before:
            buffer.copy_(value)
    kinds = backend.partitioning.kinds
    missing = sorted(config.moved - kinds)
    if missing:
        raise UsageError(f"ops_to_partition: no graph has {missing[0]!r}; {nearest(missing[0], kinds)}")
    return result


def adapter_of(spec: ModeSpec) -> Adapter:
    """The backend of a mode. Raises UsageError for one whose kernels are swapped: its backend would not be
    asked of them."""
    refuse_swaps(spec)
    return adapter_for(spec)


def arguments_of(inputs: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the positional and the named arguments of a module's call."""
    if isinstance(inputs, Mapping):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (list, tuple)) else ((inputs,), {})

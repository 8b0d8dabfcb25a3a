"""`numdrift.partition`: a module that runs partly on a mode's backend."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import UsageError, nearest
from ...hooks.backend_adapter import Adapter, adapter_for
from ...records.modes.mode_spec import ModeSpec, parse_mode
from ...records.tools.partition_record import OF_PROCESS, GraphPartition, PartitionConfig, Partitioning, refuse_swaps
from ...torch_private.compiler.partitioner import call_by_backend
from .partition_backend import PartitioningBackend, log_graph
from .partition_journal import Part, PartCall


class PartitionedModule(torch.nn.Module):
    """Executes `module` in parts. Its parameters are those of `module`, so it trains as `module` does.

    `partitioning` lists the graphs and where their operators run.
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
        """The module's calls in the graphs planned so far."""
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
    """Return a module whose operators run on the mode's backend if it supports them, and otherwise on the CPU.

        net = numdrift.partition(Net(), torch.rand(32, 784), config=PartitionConfig(max_subgraph_count=2))
        net(x).sum().backward()

    `inputs` are the module's arguments: a tensor, a sequence of arguments, or a mapping of named ones. The module is
    called with them once; its buffers and the random generator are restored afterwards. Each set of input shapes has
    its own partitions, one for training and one for evaluation. A partition is created when it is first needed, and
    the logger `numdrift.partition` reports it at INFO.

    Raises PartitionError (a ValueError) if a limit of `config` is violated, UsageError if `config` moves an operator
    that the module does not have, ModeError for an invalid mode, and NotAvailable if the backend is not available in
    this process.
    """
    spec = parse_mode(mode)
    for key in OF_PROCESS:
        if key in spec.to_json():
            raise UsageError(f"mode {mode!r}: the key {key!r} sets up a process; leave it out to partition a module")
    return partitioned(module, inputs, adapter_of(spec), config or PartitionConfig(), log_graph)


def partitioned(
    module: torch.nn.Module,
    inputs: Any,
    adapter: Adapter,
    config: PartitionConfig,
    report: Callable[[GraphPartition], None],
    only: frozenset[Part] | None = None,
) -> PartitionedModule:
    """Partition as `partition` does, with a backend that is available.

    `report` receives each graph. With `only`, all other calls run on the CPU.
    """
    elsewhere = {tensor.device.type for tensor in [*module.parameters(), *module.buffers()]} - {"cpu"}
    if elsewhere:
        raise UsageError(
            f"{type(module).__name__} is on {' and '.join(sorted(elsewhere))}; pass a module on the CPU: the backend's "
            "part is moved when it runs"
        )
    try:
        file = inspect.getfile(type(module))
    except (TypeError, OSError):  # a class that is in no file: a file name in this folder is used instead
        file = str(Path.cwd() / "__main__")
    backend = PartitioningBackend(adapter, config, type(module).__name__, file, report, only=only)
    result = PartitionedModule(module, backend)
    args, kwargs = arguments_of(inputs)
    # The first call captures and partitions. It is not part of the training: buffers and the generator are restored.
    before = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with torch.random.fork_rng(devices=[]):
        result(*args, **kwargs)
    with torch.no_grad():
        for buffer, value in before:
            buffer.copy_(value)
    kinds = backend.partitioning.kinds
    missing = sorted(config.moved - kinds)
    if missing:
        raise UsageError(f"ops_to_partition: no graph contains {missing[0]!r}; {nearest(missing[0], kinds)}")
    return result


def adapter_of(spec: ModeSpec) -> Adapter:
    """Return the backend of a mode.

    Raises UsageError for a mode whose kernels are swapped: the partitioner does not ask the backend about swapped
    kernels.
    """
    refuse_swaps(spec)
    return adapter_for(spec)


def arguments_of(inputs: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the positional and the keyword arguments of a module's call."""
    if isinstance(inputs, Mapping):
        return (), inputs
    return (tuple(inputs), {}) if isinstance(inputs, (list, tuple)) else ((inputs,), {})

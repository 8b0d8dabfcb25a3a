"""The instrument `partition` of a run on the CPU: it partitions the training's root modules."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

import torch

from ...errors import NumdriftError, UsageError, nearest
from ...hooks.observer import Observer
from ...records.modes.mode_spec import ModeSpec
from ...records.tools.partition_record import GraphPartition, PartitionConfig
from ...script.parallel import within_wrapper
from ...torch_private.compiler.compiling import undo_compile_in_place
from ...torch_private.compiler.partitioner import call_in_place
from ...torch_private.profiling.compile_work import graph_breaks
from .partition_backend import PartitioningBackend
from .partition_journal import PARTITION, PartitionWriter
from .partitioned_module import adapter_of

if TYPE_CHECKING:
    from ...hooks.backend_adapter import Adapter
    from ...hooks.observer import Surroundings


class PartitionInstrument(Observer):
    """Puts the partitioner around each root module before its first call.

    Options:

    mode: the mode whose backend executes the operators that it supports
    config: the limits and the operators to move
    only: the only calls that run on the backend, each as its graph's number and its number in that graph

    Unlike other instruments, this one changes the execution: that is its purpose. If a limit is broken, the error is
    raised in the script, at the call of the module.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._spec = ModeSpec.from_json(surroundings.options["mode"])
        self._config = PartitionConfig.from_json(surroundings.options["config"])
        only = surroundings.options.get("only")
        self._only = None if only is None else frozenset((graph, number) for graph, number in only)
        self._writer = PartitionWriter(surroundings.folder / PARTITION)
        self._numbers = itertools.count()
        self._adapter: Adapter | None = None
        self._kinds: set[str] = set()
        self._modules: list[torch.nn.Module] = []
        self._backends: list[PartitioningBackend] = []

    def install(self) -> None:
        try:
            self._adapter = adapter_of(self._spec)
        except NumdriftError as error:
            # A run without partitioning is useless here, so exit before the script runs.
            self._writer.failed(str(error), error.exit_code)
            sys.exit(f"numdrift: {error}")
        self._writer.begin(str(self._spec), self._adapter.name)

    def adopted(self, module: torch.nn.Module) -> None:
        # In a partitioned run, the script's own `torch.compile(model)` stays eager: `model` is partitioned instead.
        inner = getattr(module, "_orig_mod", module)
        module = within_wrapper(inner if isinstance(inner, torch.nn.Module) else module)
        name = type(module).__name__
        if isinstance(module, torch.jit.ScriptModule):
            self._writer.write("note", text=f"TorchScript is not captured, so {name} runs unpartitioned")
            return
        assert self._adapter is not None
        script = self._around.config.script
        backend = PartitioningBackend(
            self._adapter, self._config, name, script, self._write_partition, self._numbers, self._only
        )
        call_in_place(module, backend)
        self._modules.append(module)
        self._backends.append(backend)

    def script_ended(self, failure: str) -> None:
        if failure:
            self._writer.failed(failure, 3)

    def close(self) -> None:
        for module in self._modules:
            undo_compile_in_place(module)
        for broken in graph_breaks():
            at = f" at {broken.source}" if broken.source else ""
            self._writer.write("note", text=f"torch.compile breaks the graph{at}: {broken.reason}")
        missing = sorted(self._config.moved - self._kinds)
        if missing and self._kinds:
            self._writer.write("note", text=f"no graph contains {missing[0]!r}; {nearest(missing[0], self._kinds)}")
        if self._only is not None:
            calls = {part: call for backend in self._backends for part, call in backend.calls.items()}
            self._writer.write("calls", calls=[[*part, *call] for part, call in sorted(calls.items())])
        self._writer.write("end")

    def forget(self) -> None:
        self._writer.forget()

    def _write_partition(self, partition: GraphPartition) -> None:
        self._kinds.update(row.kind for row in partition.operators)
        self._writer.write("graph", **partition.to_json())
        if partition.violated:
            self._writer.failed(partition.violated, UsageError.exit_code)

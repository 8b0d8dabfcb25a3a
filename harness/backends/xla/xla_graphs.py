"""Write the graphs that torch_xla executes into the run's folder, before and after XLA's optimisation."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...records.tools.graph_record import Cut, GraphFolder, Value
from ..deferred_calls import KnownValues
from ..followed_graph import FollowedGraph, GraphFiler, MadeNodes, Output, is_foreign
from .hlo_graph import post_graph
from .hlo_module import read_hlo, values_in
from .xla_ir import ExecutedIr
from .xla_values import by_value, outputs_of, returned

OPTIMIZED = ".cpu_after_optimizations.txt"


@dataclass(frozen=True, slots=True)
class Compiled:
    """The HLO module that XLA made of a graph.

    module: the file of the module's text, None if XLA wrote none.
    outputs: the dtypes and shapes of the module's outputs.
    calls: for each node of the graph, its op and the number of the call that made it when XLA compiled the graph. The
        number is None if calls were not followed at that time.
    """

    module: Path | None
    outputs: Sequence[Value]
    calls: Sequence[tuple[str, int | None]]


class XlaGraphs(GraphFiler):
    """The writer of the graphs that contain ops of the steps in `steps`.

    `modules` is the folder where XLA writes the modules that it compiles.
    """

    def __init__(self, folder: GraphFolder, values: KnownValues, steps: Container[int], modules: Path | None) -> None:
        super().__init__(folder, values, steps)
        self._modules = modules
        self._compiled: dict[str, Compiled] = {}
        self._read_paths: set[Path] = set()

    def compiled(self, executed: ExecutedIr) -> None:
        """Find the module that XLA has compiled for a graph that is executed for the first time.

        Modules are numbered in the order of their compilation, so call this for every graph that has ops. A module
        that takes or returns a different number of values belongs to an execution that was not observed.
        """
        if executed.hash in self._compiled:
            return
        makers = MadeNodes.of(executed.nodes, self._known_values).calls
        module, outputs = self._module_of(executed)
        calls = [(node.op, makers[node.number].number if node.number in makers else None) for node in executed.nodes]
        self._compiled[executed.hash] = Compiled(module, outputs, calls)

    def take(self, executed: ExecutedIr, cut: Cut, step: int, *, is_awaited: bool) -> int | None:
        """Write the graph of one execution. Return the step of its latest op, None if none of its ops was followed.

        step: the step to which an execution without ops belongs.
        is_awaited: write the execution even if its latest step is not wanted.
        """
        if is_foreign(executed.nodes, self._known_values):
            return None
        made = MadeNodes.of(executed.nodes, self._known_values)
        compiled = self._compiled.get(executed.hash)
        shapes = compiled.outputs if compiled is not None else ()
        outputs = outputs_of(executed, returned(made), shapes)
        built = FollowedGraph(executed.nodes, self._known_values, outputs, by_value)
        met = {call.step for at, call in made.calls.items() if not made.nodes[at].is_input} or {step}

        def write() -> None:
            name = self._names.get(executed.hash)
            if name is None:
                name = self._names[executed.hash] = self._write(executed, built, outputs, cut)
            self._folder.executed(name, executed.hash, cut)

        return self._file(met, write, is_awaited=is_awaited)

    def _write(self, executed: ExecutedIr, built: FollowedGraph, outputs: Sequence[Output | None], cut: Cut) -> str:
        pre = replace(built.graph(self._folder.step), hash=executed.hash, cut=cut)
        name = self._folder.reserve(pre.phase)
        pre = replace(pre, name=f"{name}-pre")
        self._folder.write(pre)
        compiled = self._compiled.get(executed.hash)
        if compiled is None or compiled.module is None:
            self._folder.unavailable("post", f"XLA wrote no module for {pre.name}")
            return name
        calls: dict[str, int] = {}
        if [node.op for node in executed.nodes] == [op for op, _ in compiled.calls]:  # else the numbers do not match
            for node, (_, call) in zip(executed.nodes, compiled.calls, strict=True):
                if call is not None:
                    calls[built.value_name((node.number, 0))] = call
        device_data = [built.value_name((node.number, 0)) for node in executed.nodes if node.op == "device_data"]
        output_names = [None if output is None else built.value_name(output) for output in outputs]
        post = post_graph(read_hlo(compiled.module.read_text(encoding="utf-8")), pre, calls, device_data, output_names)
        self._folder.write(replace(post, name=f"{name}-post", hash=pre.hash, pre=pre.name))
        return name

    def _module_of(self, executed: ExecutedIr) -> tuple[Path | None, Sequence[Value]]:
        if self._modules is None:
            return None, ()
        data_count = sum(node.op == "device_data" for node in executed.nodes)
        for path in sorted(self._modules.glob(f"module_*{OPTIMIZED}")):
            if path in self._read_paths:
                continue
            layout = path.read_text(encoding="utf-8").partition("\n")[0].partition("entry_computation_layout={")[2]
            inputs, _, outputs = layout.partition(")->")
            # A value that occurs several times in the IR is only one parameter.
            if inputs.count("[") <= data_count and outputs.count("[") == len(executed.roots):
                self._read_paths.add(path)
                return path, tuple(values_in(outputs))
        return None, ()

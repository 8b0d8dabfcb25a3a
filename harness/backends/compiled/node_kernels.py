"""Compile the nodes of a graph without fusing them, each into the kernel that the compiler makes for a single op."""

from __future__ import annotations

import math
import operator
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.flop_counter import FlopCounterMode

from ...records.modes.mode_spec import ModeSpec
from ...tape.recording.call_log import CallValues
from ...tape.replaying.laid_out import LaidOut
from ...tape.replaying.replay import Computation, is_same, set_apart
from ...tape.serving.step_kernels import executed_apart
from ...tape.tape import Call, GeneratorState, NotReplayable, Tape, View, leaves, mapped
from ...torch_private.compiler.probing import Boxed, compile_graph, fake_mode
from ...torch_private.dispatching import registered_operation, without_dispatch_modes
from ...torch_private.operators import written_names
from ...torch_private.profiling.device_work import is_accelerator
from .captured_calls import CapturedCalls
from .recompiled_step import recompiled_as

TOGETHER = 16
"""The largest number of nodes that are compiled as one graph, since many nodes take about as long to compile as one.

If one of them is needed, all are executed.
"""

COMPILE_SECONDS = 2.0
"""About the time that the compiler takes for a graph. Nodes are compiled together if executing all of them whenever one
is needed takes no longer. In a GPT-2 of 124 million parameters, the product before the loss takes a second: beside 15
other nodes, it would be executed a hundred times."""

BYTES_PER_SECOND = {False: 4e9, True: 1e12}
"""The bytes that kernels read or write in a second, on a few processors of a machine and on an accelerator."""

FLOPS_PER_SECOND = {False: 5e10, True: 1e13}
"""The floating-point operations of their products in a second. Only the orders of magnitude matter."""

DEVICE_SECONDS = 60.0
"""The limit in seconds for compiling a step's nodes for an accelerator, whose kernels take long to compile."""

MOST_ZEROS = 2**26
"""The limit in bytes for zeros that are kept as inputs for nodes whose results are not needed."""


@dataclass(frozen=True, slots=True)
class KernelTensor:
    """The dtype, layout and device of a tensor that a kernel is compiled for."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    device: str

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A kernel: an op, its arguments with `KernelTensor`s in place of tensors, and whether it belongs to a backward."""

    op: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    backward: bool

    def tensors(self) -> list[KernelTensor]:
        values = [self.arguments, *(value for _, value in self.keywords)]
        return [value for value in leaves(values) if isinstance(value, KernelTensor)]

    def seconds(self) -> float:
        """Estimate the time that the kernel takes."""
        operation: Any = registered_operation(self.op)
        with fake_mode(), torch.no_grad(), FlopCounterMode(display=False) as counter:
            inputs = [tensor.empty() for tensor in self.tensors()]
            args, kwargs = _filled(self, iter(inputs))
            made = [value for value in leaves([operation(*args, **kwargs)]) if isinstance(value, torch.Tensor)]
        on_accelerator = any(is_accelerator(tensor.device) for tensor in self.tensors())
        moved: int = sum(tensor.numel() * tensor.element_size() for tensor in (*inputs, *made))
        flops: int = counter.get_total_flops()
        return moved / BYTES_PER_SECOND[on_accelerator] + flops / FLOPS_PER_SECOND[on_accelerator]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledNodes:
    """A graph of independent nodes. `results` says, for each node, which of its flat outputs the graph returns."""

    kinds: Sequence[NodeKind]
    results: Sequence[Sequence[bool]]
    run: Boxed


class NodeCompiler(Protocol):
    """A function that compiles a graph of aten ops. `inputs` are fake tensors."""

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Boxed: ...


compile_node: NodeCompiler = compile_graph
"""The compiler of nodes: Inductor with its current configuration."""


class NodeKernels:
    """The kernels of the compiled nodes of a step. `compile_` compiles them when they are first needed.

    Nodes that draw random numbers or write to an argument are excluded: for these, the compiler calls eager kernels.
    """

    def __init__(self, tape: Tape, compile_: NodeCompiler = compile_node) -> None:
        self._tape = tape
        self._compile_graph = compile_
        self._compiled_kinds: dict[NodeKind, tuple[CompiledNodes, int]] = {}
        self._kept: dict[NodeKind, list[torch.Tensor]] = {}
        self._room = MOST_ZEROS
        self._limit = DEVICE_SECONDS if any(is_accelerator(slot.device) for slot in tape.slots) else math.inf
        self._spent = 0.0

    def prepare(self, positions: Iterable[int]) -> None:
        """Compile the kernels of these calls in batches. `execute` raises for a kernel that cannot be compiled."""
        wanted: dict[bool, Counter[NodeKind]] = {False: Counter(), True: Counter()}
        for position in positions:
            call = self._tape.calls[position]
            operation = registered_operation(call.op)
            if operation is not None and is_generated(call, operation):
                kind = self._kind(call, call.arguments, call.keywords)
                if kind not in self._compiled_kinds:
                    wanted[kind.backward][kind] += 1
        for times in wanted.values():
            for kinds in compiled_together(times):
                with suppress(Exception):  # one of them may fail to compile
                    self._compile(kinds)

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Return the flat outputs of a node. Exceptions of the compiler propagate."""
        kind = self._kind(computation.call, arguments, keywords)
        if kind not in self._compiled_kinds:
            self._compile([kind])
        compiled, number = self._compiled_kinds[kind]
        values = leaves([arguments, *(keywords[name] for name, _ in kind.keywords)])
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        with without_dispatch_modes():
            # All nodes of the graph are executed, since they were compiled together. All but the wanted node get
            # zeros, and their results are discarded.
            inputs: list[Any] = []
            for at, kind_in_graph in enumerate(compiled.kinds):
                inputs += tensors if at == number else self._zeros(kind_in_graph)
            outputs = list(compiled.run(inputs))
        before = sum(sum(node_results) for node_results in compiled.results[:number])
        own = iter(outputs[before:])
        return [next(own) if is_returned else None for is_returned in compiled.results[number]]

    def _zeros(self, kind: NodeKind) -> list[torch.Tensor]:
        """Return zeros for the inputs of a kernel. Keep them if there is room, since no kernel writes to its inputs."""
        zeros = self._kept.get(kind)
        if zeros is None:
            zeros = [tensor.empty().zero_() for tensor in kind.tensors()]
            size = sum(tensor.untyped_storage().nbytes() for tensor in zeros)
            if size <= self._room:
                self._kept[kind] = zeros
                self._room -= size
        return zeros

    def _compile(self, kinds: Sequence[NodeKind]) -> None:
        """Compile these nodes. Raise NotReplayable after the time limit. Exceptions of the compiler propagate."""
        if self._spent >= self._limit:
            raise NotReplayable(f"compiling nodes outside their graph took longer than {self._limit:.0f} s")
        began = time.monotonic()
        try:
            module, inputs, results = graph_of(kinds)
            run = self._compile_graph(module, inputs, backward=kinds[0].backward)
        finally:
            self._spent += time.monotonic() - began
        compiled = CompiledNodes(kinds, results, run)
        self._compiled_kinds.update({kind: (compiled, number) for number, kind in enumerate(kinds)})

    def _kind(self, call: Call, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> NodeKind:
        def kind(value: Any) -> Any:
            if isinstance(value, View):
                device = self._tape.slots[value.slot].device
                return KernelTensor(value.dtype, value.size, value.stride, device)
            if isinstance(value, torch.Tensor):
                return KernelTensor(value.dtype, tuple(value.size()), tuple(value.stride()), str(value.device))
            return value

        named = tuple((name, mapped(kind, keywords[name])) for name in sorted(keywords))
        return NodeKind(call.op, mapped(kind, arguments), named, call.phase == "backward")


def compiled_together(times: Mapping[NodeKind, int]) -> list[list[NodeKind]]:
    """Return the nodes in groups that are worth compiling together, given how often each is needed.

    A group of n nodes that are needed k times in all and take s seconds in all is executed for k s seconds.
    """
    seconds = dict[NodeKind, float]()
    for kind in times:
        with suppress(Exception):  # a node that fails on fake tensors fails to compile, too
            seconds[kind] = kind.seconds()
    groups: list[list[NodeKind]] = []
    count, spent = 0, 0.0
    for kind in sorted(seconds, key=lambda candidate: seconds[candidate]):
        count, spent = count + times[kind], spent + seconds[kind]
        if not groups or len(groups[-1]) == TOGETHER or count * spent > COMPILE_SECONDS:
            groups.append([])
            count, spent = times[kind], seconds[kind]
        groups[-1].append(kind)
    return groups


def graph_of(kinds: Sequence[NodeKind]) -> tuple[torch.fx.GraphModule, list[Any], list[list[bool]]]:
    """Return a graph that executes these nodes independently, its fake inputs, and the `CompiledNodes.results`."""
    graph = torch.fx.Graph()
    inputs: list[Any] = []
    outputs: list[torch.fx.Node] = []
    results: list[list[bool]] = []
    mode = fake_mode()
    placeholders = []
    # All placeholders come first, since a compiler takes them by position.
    for number, tensor in enumerate(kernel_tensor for kind in kinds for kernel_tensor in kind.tensors()):
        with mode:
            inputs.append(tensor.empty())
        placeholders.append(graph.placeholder(f"input_{number}"))
        placeholders[-1].meta["val"] = inputs[-1]
    next_placeholders, next_inputs = iter(placeholders), iter(inputs)
    for kind in kinds:
        operation: Any = registered_operation(kind.op)
        node = graph.call_function(operation, *_filled(kind, next_placeholders))
        args, kwargs = _filled(kind, next_inputs)
        with mode, torch.no_grad():
            value = node.meta["val"] = operation(*args, **kwargs)
        several = isinstance(value, (list, tuple))
        made = list(value) if several else [value]
        results.append([isinstance(result, torch.Tensor) for result in made])
        for index, output in enumerate(made):
            if several and results[-1][index]:
                outputs.append(graph.call_function(operator.getitem, (node, index)))
                outputs[-1].meta["val"] = output
            elif results[-1][index]:
                outputs.append(node)
    graph.output(tuple(outputs))
    return torch.fx.GraphModule(torch.nn.Module(), graph), inputs, results


def _filled(kind: NodeKind, tensors: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a node, with the next of `tensors` in place of each `KernelTensor`."""

    def value(argument: Any) -> Any:
        return next(tensors) if isinstance(argument, KernelTensor) else argument

    arguments: tuple[Any, ...] = mapped(value, kind.arguments)
    return arguments, {name: mapped(value, keyword) for name, keyword in kind.keywords}


def is_generated(call: Call, operation: Any) -> bool:
    """Return whether the compiler may have generated a kernel for this call, rather than called an eager one."""
    values = leaves([call.arguments, *call.keywords.values()])
    takes_state = any(isinstance(value, GeneratorState) for value in values)
    called = call.draw is not None or takes_state or bool(written_names(operation))
    return call.compiled is not None and not called


# The values that the recorded steps of a compiling mode really computed, for questions after the training.


class RecordedKernels:
    """The kernels of one step. `notes` say which of its values are unknown, and why.

    compile_: the mode's compiler if it generates kernels, None if it executes graphs by eager ops.
    captured: the step's calls of its compiled code, None if they are unknown.
    """

    def __init__(
        self, tape: Tape, values: CallValues, compile_: NodeCompiler | None, captured: CapturedCalls | None = None
    ) -> None:
        self.captured = captured
        self._same: bool | None = None
        self.notes = tuple(dict.fromkeys(values.notes))
        self._generates = compile_ is not None
        self._values = values
        # Keep only the calls: the step's inputs and results would take memory for each recorded step.
        self._nodes = NodeKernels(tape.without_values(), compile_ or compile_node)

    def digests(self) -> list[list[str | None]]:
        """Return, for each call, the digests of its fresh outputs and written tensors, None for an unknown value."""
        return self._values.digests

    def value(self, position: int) -> list[torch.Tensor] | None:
        """Return the real results of a call of a compiled graph, None if they are unknown or were not kept."""
        return self._values.value(position)

    def prepare(self, positions: Sequence[int]) -> None:
        """Compile the kernels of these calls together, for later calls of `execute`."""
        if self._generates:
            self._nodes.prepare(positions)

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call as this mode does: a node of a compiled graph by its own kernel, any other call by eager ops.

        Return flat outputs. Arguments that the op writes to are changed in place. Grad mode, autocast and generators
        are restored. Exceptions of the compiler or an op propagate.
        """
        if computation.position in self._values.swapped:
            with set_apart(()):
                outputs = self._values.swapped[computation.position](*arguments, **keywords)
            return list(leaves(outputs))
        if self._generates and is_generated(computation.call, computation.operation):
            with torch.no_grad():
                return self._nodes.execute(computation, arguments, keywords)
        return executed_apart(computation, arguments, keywords)

    def called(self, position: int) -> list[LaidOut] | None:
        """Return the layouts of a node's arguments if the generated code called the op itself, else None."""
        return self._values.layouts.get(position)

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        """Return the results of the step on this tape with its captured graphs compiled in the mode `spec`.

        `own` is the recorded mode. Raise NotReplayable if the step, compiled again in the recorded mode, does not
        reproduce its own bits. Exceptions of the compiler or an op propagate.
        """
        if self.captured is None:
            raise NotReplayable("numdrift does not know how the step called its compiled code")
        if self._same is None:
            recompiled = recompiled_as(own, tape, self.captured)
            self._same = all(is_same(recompiled[name], value) for name, value in tape.expected().items())
        if not self._same:
            raise NotReplayable("compiled again in its own mode, the step does not reproduce its own bits")
        return recompiled_as(spec, tape, self.captured)

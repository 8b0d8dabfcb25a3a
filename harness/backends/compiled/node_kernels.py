"""Compiles nodes of a graph one by one: what the compiler makes of an op with which nothing is fused."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...tape.call_log import CallValues
from ...tape.replay import Computation, executed, set_apart
from ...tape.tape import Call, GeneratorState, Tape, View, leaves, mapped
from ...torch_private.dispatching import without_dispatch_modes
from ...torch_private.operators import written_names
from ...torch_private.probing import Boxed, compile_graph, fake_mode
from ...torch_private.taping import registered_operation

TOGETHER = 16
"""Nodes that are compiled as one graph: one needs about as long as many, and all are executed when one is
asked for."""


@dataclass(frozen=True, slots=True)
class KernelTensor:
    """What a kernel is made for: a tensor of this dtype and layout."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    device: str

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A kernel: an op, what it takes, with a `TensorKind` for each tensor, and the direction it is compiled
    for."""

    op: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    backward: bool

    def tensors(self) -> list[KernelTensor]:
        return [one for one in leaves([self.arguments, _values(self.keywords)]) if isinstance(one, KernelTensor)]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledNodes:
    """A graph of independent nodes. `results` says of each node which of its flat outputs the graph gives."""

    kinds: Sequence[NodeKind]
    results: Sequence[Sequence[bool]]
    run: Boxed

    def execute(self, number: int, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The flat outputs of one node on these tensors; the others get zeros."""
        inputs: list[Any] = []
        for at, kind in enumerate(self.kinds):
            # All nodes of the graph are executed, for they were compiled together; what the others give is
            # thrown away.
            inputs += tensors if at == number else [one.empty().zero_() for one in kind.tensors()]
        outputs = list(self.run(inputs))
        before = sum(sum(one) for one in self.results[:number])
        own = iter(outputs[before:])
        return [next(own) if given else None for given in self.results[number]]


class NodeCompiler(Protocol):
    """Compiles a graph of aten ops; `inputs` are fake."""

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Boxed: ...


compile_node: NodeCompiler = compile_graph
"""By Inductor, as it is configured now."""


class NodeKernels:
    """The kernels of the compiled nodes of a step, compiled when they are first needed, by `compile_`.

    Nodes that draw random numbers or write to an argument are not among them: the compiler calls eager's
    kernels there.
    """

    def __init__(self, tape: Tape, compile_: NodeCompiler = compile_node) -> None:
        self._tape = tape
        self._compile_graph = compile_
        self._known: dict[NodeKind, tuple[CompiledNodes, int]] = {}

    def prepare(self, positions: Iterable[int]) -> None:
        """Compile the kernels of these calls, some at a time. What cannot be compiled is left for `execute`
        to say."""
        wanted: dict[bool, dict[NodeKind, None]] = {False: {}, True: {}}
        for position in positions:
            call = self._tape.calls[position]
            operation = registered_operation(call.op)
            if operation is not None and is_generated(call, operation):
                kind = self._kind(call, call.arguments, call.keywords)
                if kind not in self._known:
                    wanted[kind.backward].setdefault(kind)
        for kinds in wanted.values():
            for some in _parts(list(kinds), TOGETHER):
                with suppress(Exception):  # one of them may be what cannot be compiled
                    self._compile(some)

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """The flat outputs of a node. Raises what a compiler raises."""
        kind = self._kind(one.call, arguments, keywords)
        if kind not in self._known:
            self._compile([kind])
        compiled, number = self._known[kind]
        tensors = [each for each in leaves([arguments, _values(kind.keywords, keywords)]) if _is_tensor(each)]
        with without_dispatch_modes():
            return compiled.execute(number, tensors)

    def _compile(self, kinds: Sequence[NodeKind]) -> None:
        module, inputs, results = graph_of(kinds)
        run = self._compile_graph(module, inputs, backward=kinds[0].backward)
        compiled = CompiledNodes(kinds, results, run)
        self._known.update({kind: (compiled, number) for number, kind in enumerate(kinds)})

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


def graph_of(kinds: Sequence[NodeKind]) -> tuple[torch.fx.GraphModule, list[Any], list[list[bool]]]:
    """A graph that executes these nodes independently, its fake inputs, and which outputs of each node it
    gives."""
    graph, inputs, outputs, results = torch.fx.Graph(), [], [], []
    mode = fake_mode()
    placeholders = []
    for number, tensor in enumerate(one for kind in kinds for one in kind.tensors()):
        with mode:
            inputs.append(tensor.empty())
        placeholders.append(graph.placeholder(f"input_{number}"))
        placeholders[-1].meta["val"] = inputs[-1]
    given, faked = iter(placeholders), iter(inputs)
    for kind in kinds:
        operation: Any = registered_operation(kind.op)
        node = graph.call_function(operation, *_filled(kind, given))
        args, kwargs = _filled(kind, faked)
        with mode, torch.no_grad():
            node.meta["val"] = operation(*args, **kwargs)
        made = list(_results(graph, node))
        outputs += [one for one in made if one is not None]
        results.append([one is not None for one in made])
    graph.output(tuple(outputs))
    return torch.fx.GraphModule(torch.nn.Module(), graph), inputs, results


def _filled(kind: NodeKind, tensors: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a node with the next of `tensors` in place of each kind of tensor."""

    def value(argument: Any) -> Any:
        return next(tensors) if isinstance(argument, KernelTensor) else argument

    arguments: tuple[Any, ...] = mapped(value, kind.arguments)
    return arguments, {name: mapped(value, one) for name, one in kind.keywords}


def _results(graph: torch.fx.Graph, node: torch.fx.Node) -> Iterator[torch.fx.Node | None]:
    """The flat outputs of a node, None for one that is no tensor."""
    value = node.meta["val"]
    if not isinstance(value, (list, tuple)):
        yield node if _is_tensor(value) else None
        return
    for index, one in enumerate(value):
        if _is_tensor(one):
            taken = graph.call_function(operator.getitem, (node, index))
            taken.meta["val"] = one
            yield taken
        else:
            yield None


def is_generated(call: Call, operation: Any) -> bool:
    """Whether the compiler may have made a kernel of its own for this call."""
    given = leaves([call.arguments, *call.keywords.values()])
    takes_state = any(isinstance(one, GeneratorState) for one in given)
    called = call.draw is not None or takes_state or bool(written_names(operation))
    return call.compiled is not None and not called


def _values(named: Sequence[tuple[str, Any]], values: Mapping[str, Any] | None = None) -> list[Any]:
    """The values of keywords in their order, or those of the same names."""
    return [value if values is None else values[name] for name, value in named]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _parts(values: Sequence[NodeKind], size: int) -> Iterator[Sequence[NodeKind]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


# What the steps that a compiling mode has taped really computed, for those who ask after the training.


class RecordedKernels:
    """The kernels of one step. `notes` say which of its values are unknown, and why.

    `compile_` is the mode's compiler, which makes kernels of its own; None for one that executes graphs by
    eager ops.
    """

    def __init__(self, tape: Tape, values: CallValues, compile_: NodeCompiler | None) -> None:
        self.notes = tuple(dict.fromkeys(values.notes))
        self._generates = compile_ is not None
        self._values = values
        self._nodes = NodeKernels(tape, compile_ or compile_node)

    def digests(self) -> list[list[str | None]]:
        """For each call digests of its fresh outputs and of what it wrote; None for a value that is
        unknown."""
        return self._values.digests

    def value(self, position: int) -> list[torch.Tensor] | None:
        """What a call of a compiled graph really gave, None where that is unknown or was not kept."""
        return self._values.value(position)

    def prepare(self, positions: Sequence[int]) -> None:
        """Compile the kernels of these calls together, so that `execute` has them."""
        if self._generates:
            self._nodes.prepare(positions)

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call as this mode does: a node of a compiled graph compiled alone, anything else by eager
        ops.

        Gives flat outputs; arguments that the op writes are written in place. Grad mode, autocast and
        generators are as before afterwards. Raises what a compiler or an op raises.
        """
        draw = one.call.draw
        if one.position in self._values.swapped:
            with set_apart(()):
                outputs = self._values.swapped[one.position](*arguments, **keywords)
            return list(leaves(outputs))
        if self._generates and is_generated(one.call, one.operation):
            with torch.no_grad():
                return self._nodes.execute(one, arguments, keywords)
        devices = () if draw is None else (moved.device for moved in draw.states)
        with set_apart(devices), torch.set_grad_enabled(one.call.grad):
            return executed(one, arguments, keywords)


STEPS: dict[int, RecordedKernels] = {}
"""By step; filled when a taped step of a compiling mode has ended."""

"""A region of Python code that dynamo has captured, and the bindings of its graphs' inputs and outputs to the script.

A binding names a value of the script: `parameter 0.weight`, `buffer mean`, `loss`, `input 0`, `output 1`.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...hooks.graph_capture import NamedTensors
from ...records.tools.graph_record import Graph
from ...tape.node_origin import path_in_source
from ...torch_private.compiler.graph_stages import DynamoGraph, GraphInput

PARAMETER_SOURCE = re.compile(r"\._(parameters|buffers)\[[^\]]*\]$")
VARIABLE = re.compile(r"^[LG]\['(\w+)'\](.*)$", re.DOTALL)
LIFTED_INPUT = re.compile(r"^(?:primals_(\d+)|arg(\d+)_\d+)$")


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """The bindings of a dynamo graph's inputs and outputs, in order."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def signature_of(seen: DynamoGraph, names: Mapping[int, str]) -> GraphSignature:
    """Return the bindings of a dynamo graph's inputs and outputs. `names` maps the `id` of a tensor to its binding."""
    order = {name: number for number, name in enumerate(seen.locals)}

    def place(graph_input: GraphInput) -> tuple[int, list[Any]]:
        """Return a sort key: the variable's position in dynamo's order of use, then the path within the variable.

        The key sorts `x[9]` before `x[10]`.
        """
        matched = VARIABLE.match(graph_input.source)
        if matched is None:
            return len(order) + 1, []
        parts = re.split(r"(\d+)", matched[2])
        return order.get(matched[1], len(order)), [int(part) if part.isdigit() else part for part in parts]

    # Name the inputs that are not the script's own arguments.
    named: dict[str, str] = {}
    for item in seen.inputs:
        example = item.example
        if isinstance(example, torch.SymInt) or type(example) is int:
            named[item.name] = f"size {example}"
        elif id(example) in names:
            named[item.name] = names[id(example)]
        elif isinstance(example, torch.nn.Parameter):
            named[item.name] = f"parameter {path_in_source(item.source)}"
        else:
            named[item.name] = f"buffer {path_in_source(item.source)}" if PARAMETER_SOURCE.search(item.source) else ""
    own = sorted((graph_input for graph_input in seen.inputs if not named[graph_input.name]), key=place)
    numbers = {graph_input.name: number for number, graph_input in enumerate(own)}
    inputs = [named[graph_input.name] or f"input {numbers[graph_input.name]}" for graph_input in seen.inputs]
    # If exactly one output is a differentiable scalar, it is the `loss`. All others are `output N`.
    returned = next((node.args[0] for node in reversed(seen.graph.nodes) if node.op == "output"), ())
    flat: Sequence[Any] = returned if isinstance(returned, (list, tuple)) else [returned]
    losses = []
    for number, item in enumerate(flat):
        example = item.meta.get("example_value") if isinstance(item, torch.fx.Node) else None
        if isinstance(example, torch.Tensor) and example.requires_grad and not example.dim():
            losses.append(number)
    outputs = ["loss" if losses == [number] else f"output {number}" for number in range(len(flat))]
    return GraphSignature(inputs, outputs)


def dynamo_bindings(graph: torch.fx.Graph, signature: GraphSignature) -> dict[str, str]:
    """Return the bindings of a dynamo graph by the names of its nodes."""
    placeholders = [node.name for node in graph.nodes if node.op == "placeholder"]
    bindings = dict(zip(placeholders, signature.inputs, strict=False))
    returned = [node for node in graph.nodes if node.op == "output"][-1].args[0]
    flat = returned if isinstance(returned, (list, tuple)) else [returned]
    for result, bound in zip(flat, signature.outputs, strict=False):
        if isinstance(result, torch.fx.Node):
            bindings.setdefault(result.name, bound)
    return bindings


@dataclass(frozen=True, slots=True)
class AotBindings:
    """The bindings of the inputs and outputs of one AOTAutograd graph."""

    signature: GraphSignature
    phase: str

    def of(self, graph: torch.fx.Graph) -> dict[str, str]:
        """Return the bindings by the names of the graph's nodes. Several bindings of one output are joined by `, `."""
        bindings: dict[str, str] = {}
        for node in graph.nodes:
            if node.op != "placeholder":
                continue
            bound = self._described_input(node.meta.get("desc"))
            # Without a description (older torch), the node's name decides: `primals_1`, `arg0_1` or `tangents_1`.
            lifted, tangent = LIFTED_INPUT.match(node.name), re.match(r"^tangents_(\d+)$", node.name)
            if not bound and lifted is not None:
                bound = self._input_binding(int(lifted[1]) - 1 if lifted[1] else int(lifted[2]))
            elif not bound and tangent is not None:
                bound = f"tangent {int(tangent[1]) - 1}"
            elif not bound and self.phase == "backward":
                bound = f"saved {node.name}"
            bindings[node.name] = bound
        input_names = set(bindings)
        output = [element for element in graph.nodes if element.op == "output"][-1]
        returned = output.args[0]
        flat: Sequence[Any] = returned if isinstance(returned, (list, tuple)) else [returned]
        described = output.meta.get("desc")
        several = isinstance(described, (list, tuple)) and len(described) == len(flat)
        for number, node in enumerate(flat):
            if not isinstance(node, torch.fx.Node):
                continue
            description: Any = described[number] if several else None
            kind = type(description).__name__
            if kind == "GradAOTOutput":
                bound = _gradient(self._described_input(description.grad_of))
            elif kind == "InputMutationAOTOutput":
                bound = self._described_input(description.mutated_input)
            elif kind.startswith("SavedForBackwards"):
                bound = f"saved {node.name}"
            elif description is None and self.phase == "backward":
                bound = _gradient(self._input_binding(number))
            else:
                outputs, at = self.signature.outputs, description.idx if kind == "PlainAOTOutput" else number
                bound = outputs[at] if at < len(outputs) else f"saved {node.name}"
            before = bindings.get(node.name, "")
            # An input keeps its binding. A value is called saved only if it has no other binding.
            if node.name in input_names or (node.name in bindings and bound.startswith("saved ")):
                continue
            bindings[node.name] = f"{before}, {bound}" if before and not before.startswith("saved ") else bound
        return bindings

    def _input_binding(self, number: int) -> str:
        return self.signature.inputs[number] if number < len(self.signature.inputs) else ""

    def _described_input(self, described: Any) -> str:
        """Return the binding of an input from AOTAutograd's description of it, "" if there is none."""
        kind = type(described).__name__
        if kind == "PlainAOTInput":
            return self._input_binding(described.idx)
        if kind in ("ParamAOTInput", "BufferAOTInput"):
            return f"{kind.removesuffix('AOTInput').lower().replace('param', 'parameter')} {described.target}"
        if kind == "TangentAOTInput":
            # A tangent belongs to an output of the forward. The output's number is nested within descriptions of how it
            # was transformed. A tangent may also belong to an input that the forward has written to.
            output = described.output
            while not hasattr(output, "idx"):
                inner = getattr(output, "base_of", getattr(output, "base", None))
                if inner is None:
                    return f"tangent of {self._described_input(getattr(output, 'mutated_input', None))}"
                output = inner
            return f"tangent {output.idx}"
        inner = getattr(described, "base_of", getattr(described, "base", None))
        return self._described_input(inner) if inner is not None else ""


def _gradient(binding: str) -> str:
    return f"gradient {binding.removeprefix('parameter ')}" if binding else "gradient"


# The script's names for its parameters and buffers.


class ScriptNames:
    """Bindings by the tensor's `id`: those that `named_tensors` returns, else those of the adopted modules."""

    def __init__(self, named_tensors: NamedTensors | None = None) -> None:
        self._named_tensors = named_tensors
        self._modules: list[weakref.ref[torch.nn.Module]] = []

    def adopt(self, module: torch.nn.Module) -> None:
        """Use the names of a module's tensors. If `torch.compile` has wrapped the module, use the original's names."""
        self._modules.append(weakref.ref(getattr(module, "_orig_mod", module)))

    def by_identity(self) -> dict[int, str]:
        """Return the current bindings. A tensor with several names is bound to the first."""
        names: dict[int, str] = {}
        if self._named_tensors is not None:
            for binding, tensor in self._named_tensors().items():
                if binding.startswith(("parameter ", "buffer ")):
                    names.setdefault(id(tensor), binding)
            return names
        for module in (reference() for reference in self._modules):
            if module is not None:
                for name, parameter in module.named_parameters():
                    names.setdefault(id(parameter), f"parameter {name}")
                for name, buffer in module.named_buffers():
                    names.setdefault(id(buffer), f"buffer {name}")
        return names


# The captured region, from dynamo's graph to the graphs that are compiled from it.


@dataclass(slots=True)
class CapturedRegion:
    """A region that dynamo has captured.

    reserve: returns the name of the forward graph, and is called when the name is first needed. The dynamo graph has
        the same name.
    hash: the hash of dynamo's graph.
    modules: the module paths of the forward, by autograd sequence number.
    lowered: whether a compiler has made aten graphs from dynamo's graph.
    """

    reserve: Callable[[], str]
    signature: GraphSignature
    backend: str
    hash: str
    phase: str = "forward"
    modules: dict[int, str] = field(default_factory=dict)
    lowered: bool = False
    write_dynamo: Callable[[], None] | None = None
    _base: str = ""

    @property
    def base(self) -> str:
        self._base = self._base or self.reserve()
        return self._base

    def traced(self) -> None:
        """Write dynamo's graph, since dynamo will not trace the frame again."""
        write, self.write_dynamo = self.write_dynamo, None
        if write is not None:
            write()


@dataclass(slots=True)
class Executable:
    """A graph that can be executed. `base` is its name without a stage; `ran` is true once it has been executed."""

    base: str
    hash: str
    ran: bool = False


@dataclass(frozen=True, slots=True)
class PreGraph:
    """A graph that goes into the compiler. `outputs` are in order, None where the graph returns no value."""

    graph: Graph
    outputs: Sequence[str | None]
    executable: Executable

"""What the inputs and outputs of a compiled graph are to the script: parameters and buffers by name, the
loss, inputs by number."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...torch_private.graph_stages import DynamoGraph, GraphInput
from ..captures import NamedTensors
from .fx_graph import path_in_source

PARAMETER_SOURCE = re.compile(r"\._(parameters|buffers)\[[^\]]*\]$")
VARIABLE = re.compile(r"^[LG]\['(\w+)'\](.*)$", re.DOTALL)
LIFTED_INPUT = re.compile(r"^(?:primals_(\d+)|arg(\d+)_\d+)$")
SCALAR = ()


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """The bindings of a dynamo graph's inputs and outputs, in their order."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def signature_of(seen: DynamoGraph, names: Mapping[int, str]) -> GraphSignature:
    """What dynamo's inputs and outputs are. `names` are bindings by the identity of the tensor."""
    numbers = {one.name: number for number, one in enumerate(_user_inputs(seen, names))}
    inputs = []
    for one in seen.inputs:
        named = _named(one, names)
        inputs.append(named or f"input {numbers[one.name]}")
    # `loss` for the one output that is a differentiable number, `output N` for the others
    returned = next((one.args[0] for one in reversed(seen.graph.nodes) if one.op == "output"), ())
    flat: Sequence[Any] = returned if isinstance(returned, (list, tuple)) else [returned]
    losses = []
    for number, one in enumerate(flat):
        example = one.meta.get("example_value") if isinstance(one, torch.fx.Node) else None
        if isinstance(example, torch.Tensor) and example.requires_grad and tuple(example.shape) == SCALAR:
            losses.append(number)
    outputs = ["loss" if losses == [number] else f"output {number}" for number in range(len(flat))]
    return GraphSignature(inputs, outputs)


def _named(one: GraphInput, names: Mapping[int, str]) -> str:
    """What an input is called that is no argument of the script's, "" for one that is."""
    example = one.example
    if isinstance(example, torch.SymInt) or type(example) is int:
        return f"size {example}"
    if id(example) in names:
        return names[id(example)]
    if PARAMETER_SOURCE.search(one.source) or isinstance(example, torch.nn.Parameter):
        path = path_in_source(one.source)
        return f"parameter {path}" if isinstance(example, torch.nn.Parameter) else f"buffer {path}"
    return ""


def _user_inputs(seen: DynamoGraph, names: Mapping[int, str]) -> list[GraphInput]:
    """The inputs that are the script's own, in the order of the frame's variables; dynamo has the order of
    use."""
    order = {name: number for number, name in enumerate(seen.locals)}

    def place(one: GraphInput) -> tuple[int, list[Any]]:
        found = VARIABLE.match(one.source)
        if found is None:
            return len(order) + 1, []
        parts = re.split(r"(\d+)", found[2])
        return order.get(found[1], len(order)), [int(part) if part.isdigit() else part for part in parts]

    return sorted((one for one in seen.inputs if not _named(one, names)), key=place)


def dynamo_bindings(graph: torch.fx.Graph, signature: GraphSignature) -> dict[str, str]:
    """The bindings of a dynamo graph by the names of its nodes."""
    placeholders = [one.name for one in graph.nodes if one.op == "placeholder"]
    found = dict(zip(placeholders, signature.inputs, strict=False))
    returned = [one for one in graph.nodes if one.op == "output"][-1].args[0]
    flat = returned if isinstance(returned, (list, tuple)) else [returned]
    for one, bound in zip(flat, signature.outputs, strict=False):
        if isinstance(one, torch.fx.Node):
            found.setdefault(one.name, bound)
    return found


@dataclass(frozen=True, slots=True)
class AotBindings:
    """The bindings of one graph of AOTAutograd: those of the values that go in and come out."""

    signature: GraphSignature
    phase: str

    def of(self, graph: torch.fx.Graph) -> dict[str, str]:
        """By the names of the graph's nodes. A value that is several outputs has them all, joined by `, `."""
        found: dict[str, str] = {}
        inputs = [one for one in graph.nodes if one.op == "placeholder"]
        for one in inputs:
            found[one.name] = self._input(one)
        given = set(found)
        for one, bound in self._returned(graph):
            if one.name in given or (one.name in found and bound.startswith("saved ")):
                continue
            before = found.get(one.name, "")
            found[one.name] = f"{before}, {bound}" if before and not before.startswith("saved ") else bound
        return found

    def _input(self, one: torch.fx.Node) -> str:
        described = self._described_input(one.meta.get("desc"))
        if described:
            return described
        lifted, tangent = LIFTED_INPUT.match(one.name), re.match(r"^tangents_(\d+)$", one.name)
        if lifted is not None:
            number = int(lifted[1]) - 1 if lifted[1] else int(lifted[2])
            return self._given(number)
        if tangent is not None:
            return f"tangent {int(tangent[1]) - 1}"
        return f"saved {one.name}" if self.phase == "backward" else ""

    def _given(self, number: int) -> str:
        return self.signature.inputs[number] if number < len(self.signature.inputs) else ""

    def _described_input(self, described: Any) -> str:
        """By AOTAutograd's own description of an input, "" where it has none."""
        kind = type(described).__name__
        if kind == "PlainAOTInput":
            return self._given(described.idx)
        if kind in ("ParamAOTInput", "BufferAOTInput"):
            return f"{kind.removesuffix('AOTInput').lower().replace('param', 'parameter')} {described.target}"
        if kind == "TangentAOTInput":
            return f"tangent {self._number(described.output)}"
        inner = getattr(described, "base_of", getattr(described, "base", None))
        return self._described_input(inner) if inner is not None else ""

    def _number(self, described: Any) -> str:
        """Which output of the forward a description means."""
        while not hasattr(described, "idx"):
            inner = getattr(described, "base_of", getattr(described, "base", None))
            if inner is None:
                return f"of {self._described_input(getattr(described, 'mutated_input', None))}"
            described = inner
        return str(described.idx)

    def _returned(self, graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, str]]:
        output = [one for one in graph.nodes if one.op == "output"][-1]
        returned = output.args[0]
        flat: Sequence[Any] = returned if isinstance(returned, (list, tuple)) else [returned]
        described = output.meta.get("desc")
        several = isinstance(described, (list, tuple)) and len(described) == len(flat)
        for number, one in enumerate(flat):
            if isinstance(one, torch.fx.Node):
                yield one, self._output(number, one, described[number] if several else None)

    def _output(self, number: int, one: torch.fx.Node, described: Any) -> str:
        kind = type(described).__name__
        if kind == "GradAOTOutput":
            return _gradient(self._described_input(described.grad_of))
        if kind == "InputMutationAOTOutput":
            return self._described_input(described.mutated_input)
        if kind == "PlainAOTOutput":
            number = described.idx
        elif kind.startswith("SavedForBackwards"):
            return f"saved {one.name}"
        elif described is None and self.phase == "backward":
            return _gradient(self._given(number))
        outputs = self.signature.outputs
        return outputs[number] if number < len(outputs) else f"saved {one.name}"


def _gradient(of: str) -> str:
    return f"gradient {of.removeprefix('parameter ')}" if of else "gradient"


# What the script calls its parameters and buffers.


class ScriptNames:
    """Bindings by the identity of the tensor: those that `named_tensors` gives, else those of the adopted
    modules."""

    def __init__(self, named_tensors: NamedTensors | None = None) -> None:
        self._named_tensors = named_tensors
        self._modules: list[weakref.ref[torch.nn.Module]] = []

    def adopt(self, module: torch.nn.Module) -> None:
        """Take the names of a module's tensors, as the module itself has them when `torch.compile` has
        wrapped it."""
        self._modules.append(weakref.ref(getattr(module, "_orig_mod", module)))

    def by_identity(self) -> dict[int, str]:
        """The bindings now, a tensor with several names by its first one."""
        found: dict[int, str] = {}
        for binding, tensor in self._all():
            found.setdefault(id(tensor), binding)
        return found

    def _all(self) -> Iterator[tuple[str, torch.Tensor]]:
        if self._named_tensors is not None:
            for binding, tensor in self._named_tensors().items():
                if binding.startswith(("parameter ", "buffer ")):
                    yield binding, tensor
            return
        for module in (one() for one in self._modules):
            if module is not None:
                yield from ((f"parameter {name}", one) for name, one in module.named_parameters())
                yield from ((f"buffer {name}", one) for name, one in module.named_buffers())

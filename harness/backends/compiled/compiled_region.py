"""One piece of Python that dynamo has captured, and what its graphs' inputs and outputs are to the script: parameters
and buffers by name, the loss, inputs by number."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...records.graph_record import Graph
from ...torch_private.graph_stages import DynamoGraph, GraphInput
from ..captures import NamedTensors
from .fx_graph import path_in_source

PARAMETER_SOURCE = re.compile(r"\._(parameters|buffers)\[[^\]]*\]$")
VARIABLE = re.compile(r"^[LG]\['(\w+)'\](.*)$", re.DOTALL)
LIFTED_INPUT = re.compile(r"^(?:primals_(\d+)|arg(\d+)_\d+)$")


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """The bindings of a dynamo graph's inputs and outputs, in their order."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def signature_of(seen: DynamoGraph, names: Mapping[int, str]) -> GraphSignature:
    """What dynamo's inputs and outputs are. `names` are bindings by the identity of the tensor."""
    order = {name: number for number, name in enumerate(seen.locals)}

    def place(one: GraphInput) -> tuple[int, list[Any]]:
        """In the order of the frame's variables, while dynamo has that of use: `L['x'][10]` comes after `L['x'][9]`."""
        found = VARIABLE.match(one.source)
        if found is None:
            return len(order) + 1, []
        parts = re.split(r"(\d+)", found[2])
        return order.get(found[1], len(order)), [int(part) if part.isdigit() else part for part in parts]

    # What an input is called that is no argument of the script's
    named: dict[str, str] = {}
    for one in seen.inputs:
        example = one.example
        if isinstance(example, torch.SymInt) or type(example) is int:
            named[one.name] = f"size {example}"
        elif id(example) in names:
            named[one.name] = names[id(example)]
        elif isinstance(example, torch.nn.Parameter):
            named[one.name] = f"parameter {path_in_source(one.source)}"
        else:
            named[one.name] = f"buffer {path_in_source(one.source)}" if PARAMETER_SOURCE.search(one.source) else ""
    own = sorted((one for one in seen.inputs if not named[one.name]), key=place)
    numbers = {one.name: number for number, one in enumerate(own)}
    inputs = [named[one.name] or f"input {numbers[one.name]}" for one in seen.inputs]
    # `loss` for the one output that is a differentiable number, `output N` for the others
    returned = next((one.args[0] for one in reversed(seen.graph.nodes) if one.op == "output"), ())
    flat: Sequence[Any] = returned if isinstance(returned, (list, tuple)) else [returned]
    losses = []
    for number, one in enumerate(flat):
        example = one.meta.get("example_value") if isinstance(one, torch.fx.Node) else None
        if isinstance(example, torch.Tensor) and example.requires_grad and not example.dim():
            losses.append(number)
    outputs = ["loss" if losses == [number] else f"output {number}" for number in range(len(flat))]
    return GraphSignature(inputs, outputs)


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
        for one in graph.nodes:
            if one.op != "placeholder":
                continue
            bound = self._described_input(one.meta.get("desc"))
            # Of older torch, without descriptions, the names tell: `primals_1`, `arg0_1`, `tangents_1`.
            lifted, tangent = LIFTED_INPUT.match(one.name), re.match(r"^tangents_(\d+)$", one.name)
            if not bound and lifted is not None:
                bound = self._given(int(lifted[1]) - 1 if lifted[1] else int(lifted[2]))
            elif not bound and tangent is not None:
                bound = f"tangent {int(tangent[1]) - 1}"
            elif not bound and self.phase == "backward":
                bound = f"saved {one.name}"
            found[one.name] = bound
        given = set(found)
        output = [one for one in graph.nodes if one.op == "output"][-1]
        returned = output.args[0]
        flat: Sequence[Any] = returned if isinstance(returned, (list, tuple)) else [returned]
        described = output.meta.get("desc")
        several = isinstance(described, (list, tuple)) and len(described) == len(flat)
        for number, one in enumerate(flat):
            if not isinstance(one, torch.fx.Node):
                continue
            what: Any = described[number] if several else None
            kind = type(what).__name__
            if kind == "GradAOTOutput":
                bound = _gradient(self._described_input(what.grad_of))
            elif kind == "InputMutationAOTOutput":
                bound = self._described_input(what.mutated_input)
            elif kind.startswith("SavedForBackwards"):
                bound = f"saved {one.name}"
            elif what is None and self.phase == "backward":
                bound = _gradient(self._given(number))
            else:
                outputs, at = self.signature.outputs, what.idx if kind == "PlainAOTOutput" else number
                bound = outputs[at] if at < len(outputs) else f"saved {one.name}"
            before = found.get(one.name, "")
            # What an input is called stays, and that a value is saved is said only where it is nothing else.
            if one.name in given or (one.name in found and bound.startswith("saved ")):
                continue
            found[one.name] = f"{before}, {bound}" if before and not before.startswith("saved ") else bound
        return found

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
            # Which output of the forward it is of: the number lies under what was done to it, or it is no output but
            # an input that the forward has written.
            output = described.output
            while not hasattr(output, "idx"):
                inner = getattr(output, "base_of", getattr(output, "base", None))
                if inner is None:
                    return f"tangent of {self._described_input(getattr(output, 'mutated_input', None))}"
                output = inner
            return f"tangent {output.idx}"
        inner = getattr(described, "base_of", getattr(described, "base", None))
        return self._described_input(inner) if inner is not None else ""


def _gradient(of: str) -> str:
    return f"gradient {of.removeprefix('parameter ')}" if of else "gradient"


# What the script calls its parameters and buffers.


class ScriptNames:
    """Bindings by the identity of the tensor: those that `named_tensors` gives, else those of the adopted modules."""

    def __init__(self, named_tensors: NamedTensors | None = None) -> None:
        self._named_tensors = named_tensors
        self._modules: list[weakref.ref[torch.nn.Module]] = []

    def adopt(self, module: torch.nn.Module) -> None:
        """Take the names of a module's tensors, as the module itself has them when `torch.compile` has wrapped it."""
        self._modules.append(weakref.ref(getattr(module, "_orig_mod", module)))

    def by_identity(self) -> dict[int, str]:
        """The bindings now, a tensor with several names by its first one."""
        found: dict[int, str] = {}
        if self._named_tensors is not None:
            for binding, tensor in self._named_tensors().items():
                if binding.startswith(("parameter ", "buffer ")):
                    found.setdefault(id(tensor), binding)
            return found
        for module in (one() for one in self._modules):
            if module is not None:
                for name, parameter in module.named_parameters():
                    found.setdefault(id(parameter), f"parameter {name}")
                for name, buffer in module.named_buffers():
                    found.setdefault(id(buffer), f"buffer {name}")
        return found


# The piece itself, from its graph to the graphs that are compiled from it.


@dataclass(slots=True)
class CapturedRegion:
    """`reserve` gives the name of its forward graph, which its dynamo graph shares, when one is first needed.

    `modules` are the paths of its forward by autograd sequence number; `lowered` says that a compiler went on
    from dynamo's graph. `hash` is that of dynamo's graph.
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
        """Dynamo will not trace the frame anew: its graph may be written."""
        write, self.write_dynamo = self.write_dynamo, None
        if write is not None:
            write()


@dataclass(slots=True)
class Executable:
    """A graph that can be executed: `base` is its name without a stage, `ran` whether it was executed before."""

    base: str
    hash: str
    ran: bool = False


@dataclass(frozen=True, slots=True)
class PreGraph:
    """A graph as it goes into the compiler: `outputs` are in its order, None where it returns no value there."""

    graph: Graph
    outputs: Sequence[str | None]
    executable: Executable

"""Compiles nodes of a graph one by one: what the compiler makes of an op with which nothing is fused."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...records.mode_spec import ModeSpec
from ...tape.call_log import CallValues
from ...tape.laid_out import LaidOut
from ...tape.replay import Computation, is_same, set_apart
from ...tape.step_kernels import StepKernels, executed_apart
from ...tape.tape import Call, GeneratorState, NotReplayable, Tape, View, leaves, mapped
from ...torch_private.device_work import is_accelerator
from ...torch_private.dispatching import registered_operation, without_dispatch_modes
from ...torch_private.operators import written_names
from ...torch_private.probing import Boxed, compile_graph, fake_mode
from .captured_calls import CapturedCalls
from .recompiled_step import recompiled_as

TOGETHER = 16
"""Nodes that are compiled as one graph: one needs about as long as many, and all are executed when one is asked for."""

DEVICE_SECONDS = 60.0
"""How long nodes of one step may be compiled one by one for an accelerator, whose kernels take long to compile."""

MOST_ZEROS = 2**26
"""Bytes of zeros that are kept for those that are executed beside the one."""


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
    """A kernel: an op, what it takes, with a `KernelTensor` for each tensor, and the direction it is compiled for."""

    op: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    backward: bool

    def tensors(self) -> list[KernelTensor]:
        values = [self.arguments, *(value for _, value in self.keywords)]
        return [one for one in leaves(values) if isinstance(one, KernelTensor)]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledNodes:
    """A graph of independent nodes. `results` says of each node which of its flat outputs the graph gives."""

    kinds: Sequence[NodeKind]
    results: Sequence[Sequence[bool]]
    run: Boxed


class NodeCompiler(Protocol):
    """Compiles a graph of aten ops; `inputs` are fake."""

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Boxed: ...


compile_node: NodeCompiler = compile_graph
"""By Inductor, as it is configured now."""


class NodeKernels:
    """The kernels of the compiled nodes of a step, compiled when they are first needed, by `compile_`.

    Nodes that draw random numbers or write to an argument are not among them: the compiler calls eager's kernels there.
    """

    def __init__(self, tape: Tape, compile_: NodeCompiler = compile_node) -> None:
        self._tape = tape
        self._compile_graph = compile_
        self._known: dict[NodeKind, tuple[CompiledNodes, int]] = {}
        self._kept: dict[NodeKind, list[torch.Tensor]] = {}
        self._room = MOST_ZEROS
        self._limit = DEVICE_SECONDS if any(is_accelerator(slot.device) for slot in tape.slots) else math.inf
        self._spent = 0.0

    def prepare(self, positions: Iterable[int]) -> None:
        """Compile the kernels of these calls, some at a time. What cannot be compiled is left for `execute` to say."""
        wanted: dict[bool, dict[NodeKind, None]] = {False: {}, True: {}}
        for position in positions:
            call = self._tape.calls[position]
            operation = registered_operation(call.op)
            if operation is not None and is_generated(call, operation):
                kind = self._kind(call, call.arguments, call.keywords)
                if kind not in self._known:
                    wanted[kind.backward].setdefault(kind)
        for kinds in wanted.values():
            for start in range(0, len(kinds), TOGETHER):
                with suppress(Exception):  # one of them may be what cannot be compiled
                    self._compile(list(kinds)[start : start + TOGETHER])

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """The flat outputs of a node. Raises what a compiler raises."""
        kind = self._kind(one.call, arguments, keywords)
        if kind not in self._known:
            self._compile([kind])
        compiled, number = self._known[kind]
        values = leaves([arguments, *(keywords[name] for name, _ in kind.keywords)])
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        with without_dispatch_modes():
            # All nodes of the graph are executed, for they were compiled together; the others get zeros, and what
            # they give is thrown away.
            inputs: list[Any] = []
            for at, other in enumerate(compiled.kinds):
                inputs += tensors if at == number else self._zeros(other)
            outputs = list(compiled.run(inputs))
        before = sum(sum(each) for each in compiled.results[:number])
        own = iter(outputs[before:])
        return [next(own) if given else None for given in compiled.results[number]]

    def _zeros(self, kind: NodeKind) -> list[torch.Tensor]:
        """What a kernel takes, filled with zeros; kept where it is small, for no kernel writes what it reads."""
        known = self._kept.get(kind)
        if known is None:
            known = [each.empty().zero_() for each in kind.tensors()]
            size = sum(one.untyped_storage().nbytes() for one in known)
            if size <= self._room:
                self._kept[kind] = known
                self._room -= size
        return known

    def _compile(self, kinds: Sequence[NodeKind]) -> None:
        """Raises NotReplayable where the time for that is over, and what a compiler raises."""
        if self._spent >= self._limit:
            raise NotReplayable(f"the {self._limit:.0f} s in which nodes are compiled alone were over")
        began = time.monotonic()
        try:
            module, inputs, results = graph_of(kinds)
            run = self._compile_graph(module, inputs, backward=kinds[0].backward)
        finally:
            self._spent += time.monotonic() - began
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
    """A graph that executes these nodes independently, its fake inputs, and which outputs of each node it gives."""
    graph = torch.fx.Graph()
    inputs: list[Any] = []
    outputs: list[torch.fx.Node] = []
    results: list[list[bool]] = []
    mode = fake_mode()
    placeholders = []
    # All placeholders come first: a compiler takes them by position.
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
            value = node.meta["val"] = operation(*args, **kwargs)
        several = isinstance(value, (list, tuple))
        made = list(value) if several else [value]
        results.append([isinstance(one, torch.Tensor) for one in made])
        for index, one in enumerate(made):
            if several and results[-1][index]:
                outputs.append(graph.call_function(operator.getitem, (node, index)))
                outputs[-1].meta["val"] = one
            elif results[-1][index]:
                outputs.append(node)
    graph.output(tuple(outputs))
    return torch.fx.GraphModule(torch.nn.Module(), graph), inputs, results


def _filled(kind: NodeKind, tensors: Iterator[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a node with the next of `tensors` in place of each kind of tensor."""

    def value(argument: Any) -> Any:
        return next(tensors) if isinstance(argument, KernelTensor) else argument

    arguments: tuple[Any, ...] = mapped(value, kind.arguments)
    return arguments, {name: mapped(value, one) for name, one in kind.keywords}


def is_generated(call: Call, operation: Any) -> bool:
    """Whether the compiler may have made a kernel of its own for this call."""
    given = leaves([call.arguments, *call.keywords.values()])
    takes_state = any(isinstance(one, GeneratorState) for one in given)
    called = call.draw is not None or takes_state or bool(written_names(operation))
    return call.compiled is not None and not called


# What the steps that a compiling mode has taped really computed, for those who ask after the training.


class RecordedKernels:
    """The kernels of one step. `notes` say which of its values are unknown, and why.

    `compile_` is the mode's compiler, which makes kernels of its own; None for one that executes graphs by eager ops.
    `captured` says how the step called its compiled code, None where that is not known.
    """

    def __init__(
        self, tape: Tape, values: CallValues, compile_: NodeCompiler | None, captured: CapturedCalls | None = None
    ) -> None:
        self.captured = captured
        self._same: bool | None = None
        self.notes = tuple(dict.fromkeys(values.notes))
        self._generates = compile_ is not None
        self._values = values
        # The calls are all that is asked for; what the step began with and gave would be held for each recorded step.
        self._nodes = NodeKernels(tape.without_values(), compile_ or compile_node)

    def digests(self) -> list[list[str | None]]:
        """For each call digests of its fresh outputs and of what it wrote; None for a value that is unknown."""
        return self._values.digests

    def value(self, position: int) -> list[torch.Tensor] | None:
        """What a call of a compiled graph really gave, None where that is unknown or was not kept."""
        return self._values.value(position)

    def prepare(self, positions: Sequence[int]) -> None:
        """Compile the kernels of these calls together, so that `execute` has them."""
        if self._generates:
            self._nodes.prepare(positions)

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call as this mode does: a node of a compiled graph compiled alone, anything else by eager ops.

        Gives flat outputs; arguments that the op writes are written in place. Grad mode, autocast and generators are as
        before afterwards. Raises what a compiler or an op raises.
        """
        if one.position in self._values.swapped:
            with set_apart(()):
                outputs = self._values.swapped[one.position](*arguments, **keywords)
            return list(leaves(outputs))
        if self._generates and is_generated(one.call, one.operation):
            with torch.no_grad():
                return self._nodes.execute(one, arguments, keywords)
        return executed_apart(one, arguments, keywords)

    def called(self, position: int) -> list[LaidOut] | None:
        """How what a node takes lay when the generated code called the op itself, None where it did not."""
        return self._values.layouts.get(position)

    def recompiled(self, tape: Tape, spec: ModeSpec, own: ModeSpec) -> dict[str, torch.Tensor]:
        """What the step on this tape gives with its captured graphs compiled as `spec` states; `own` is the mode as it
        was recorded, whose own bits have to come again first.

        Raises NotReplayable, and what a compiler or an op raises.
        """
        if self.captured is None:
            raise NotReplayable("it is not known how the step called its compiled code")
        if self._same is None:
            again = recompiled_as(own, tape, self.captured)
            self._same = all(is_same(again[name], one) for name, one in tape.expected().items())
        if not self._same:
            raise NotReplayable("compiled anew as it was, the step does not give its own bits again")
        return recompiled_as(spec, tape, self.captured)


STEPS: dict[int, StepKernels] = {}
"""By step; filled when a taped step has ended of a mode that compiles, whatever it compiles."""

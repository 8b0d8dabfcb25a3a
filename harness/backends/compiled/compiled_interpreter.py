"""Execute a compiled graph node by node with torch's own kernels, and record its calls and their sites on a tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...tape.module_frames import ModuleFrames
from ...tape.node_origin import innermost_module, path_in_source, sequence_of, stack_of
from ...tape.op_places import OpPlace
from ...tape.origin import frames_in
from ...tape.recording.call_log import CallLog, produced_by
from ...tape.recording.compiled_graphs import CompiledGraph
from ...tape.recording.followed_calls import OpCall
from ...tape.recording.probed_graph import ValueKey, value_key
from ...tape.recording.random_calls import RandomCalls
from ...tape.tape import Call, CompiledNode, NotReplayable
from ...torch_private.compiler.graph_stages import CALL
from ...torch_private.dispatching import is_operation_overload, op_behind
from ...torch_private.operators import is_random, written_names

SIZES = "sym_"
"""The prefix of the names of ops that only read a size."""


@dataclass(frozen=True, slots=True, eq=False)
class Interpreted:
    """A node that has been executed and whose call is recorded on the tape.

    position: the index of its call on the tape.
    outputs: all of its results; empty if they are not kept.
    produced: its fresh outputs, and then the tensors that it wrote to; empty if they are not kept. Those of a random
        node are always kept.
    count: the number of fresh outputs and written tensors.
    swapped: the function that executed the node in place of the call's op, None if the op itself was executed.
    """

    position: int
    node: torch.fx.Node
    call: Call
    outputs: list[Any]
    produced: list[torch.Tensor]
    count: int
    swapped: Callable[..., Any] | None


@dataclass(frozen=True, slots=True)
class Described:
    """The description of a node on the tape."""

    place: OpPlace
    frames: tuple[str, ...]
    compiled: CompiledNode


class Interpreter:
    """One execution of one graph.

    layouts: for some of the graph's values, a tensor with the layout that the value must have.
    random: the random calls of the graph's real execution.
    keep: whether to keep all values. Otherwise a value is released once no later node takes it.
    copies: some values are copied because a random op needs its arguments in another layout. This maps the index of
        each copying call on the tape to the key of the value, or to None if the value does not belong to the graph.
    """

    def __init__(
        self,
        log: CallLog,
        describe: Callable[[torch.fx.Node], Described],
        layouts: Mapping[ValueKey, torch.Tensor],
        random: RandomCalls,
        *,
        keep: bool,
    ) -> None:
        self.done: list[Interpreted] = []
        self.copies: dict[int, ValueKey | None] = {}
        self._log = log
        self._describe = describe
        self._layouts = layouts
        self._random = random
        self._keep = keep
        self._values: dict[torch.fx.Node, Any] = {}

    def run(self, module: torch.fx.GraphModule, inputs: list[Any]) -> list[Any]:
        """Execute the graph and return its outputs. Raise NotReplayable for a graph that a tape cannot hold."""
        input_values = iter(inputs)
        # For each node, the nodes whose values no later node takes
        ending: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        seen: set[torch.fx.Node] = set()
        for node in reversed(module.graph.nodes):
            last_used = [candidate for candidate in (*node.all_input_nodes, node) if candidate not in seen]
            seen.update(last_used)
            if node.op != "output":
                ending[node] = last_used
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = next(input_values)
            elif node.op == "get_attr":
                target = str(node.target)
                attribute: Any = module
                for name in target.split("."):
                    attribute = getattr(attribute, name)
                self._values[node] = attribute
            elif node.op == "call_function":
                self._values[node] = self._called(node)
            elif node.op == "output":
                return [self._value(output) for output in flat_outputs(node)]
            for unneeded in ending.get(node, ()):
                del self._values[unneeded]
        raise NotReplayable("a compiled graph has no output node")

    def _value(self, argument: Any) -> Any:
        return torch.fx.node.map_arg(argument, lambda node: self._values[node])

    def _called(self, node: torch.fx.Node) -> Any:
        args, kwargs = self._value(node.args), self._value(node.kwargs)
        operation: Any = node.target
        if not is_operation_overload(operation):
            if getattr(operation, "__module__", "") in ("_operator", "math", "torch", "builtins"):
                return operation(*args, **kwargs)
            raise NotReplayable(f"a compiled graph calls {operation}, which a tape cannot record op by op")
        if operation.name().partition("::")[2].startswith(SIZES):
            return operation(*args, **kwargs)
        if operation is torch.ops.aten.view.default:
            try:
                args[0].view(args[1])
            except RuntimeError:  # this memory layout does not allow the view: the compiler copies
                operation = torch.ops.aten.reshape.default
        described = self._describe(node)
        if is_random(operation):
            args = self._as_drawn(node, operation, args, described.place)
        execute, swapped = operation, op_behind(operation)
        if swapped is not None:
            execute, args = functools.partial(operation, args[0]), args[1:]
            operation = swapped
        noted_call = self._log.take(OpCall(operation, args, kwargs), described.place)
        outputs = execute(*args, **kwargs)
        # Put the outputs into the wanted layouts, unless as_strided reads one of them: the strides passed to as_strided
        # refer to the memory in its current layout.
        if not any(user.target is torch.ops.aten.as_strided.default for user in node.users):
            if isinstance(outputs, (list, tuple)):
                outputs = [self._in_layout((node.name, index), output) for index, output in enumerate(outputs)]
            else:
                outputs = self._in_layout((node.name, 0), outputs)
        call = self._log.complete(noted_call, outputs, described.frames, described.compiled)
        results = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        produced = produced_by(call, noted_call.call, results)
        self.done.append(
            Interpreted(
                position=len(self._log.calls) - 1,
                node=node,
                call=call,
                outputs=results if self._keep else [],
                produced=produced if self._keep or call.draw is not None else [],
                count=len(produced),
                swapped=None if swapped is None else execute,
            )
        )
        return outputs

    def _as_drawn(self, node: torch.fx.Node, operation: Any, args: tuple[Any, ...], place: OpPlace) -> tuple[Any, ...]:
        """Return the arguments of a random op in the layouts of its real execution.

        The layout matters because a kernel draws in the order of the memory. If the op writes to an argument, no
        argument is changed. An argument whose elements share memory is not changed either.
        """
        random_call = self._random.next(operation)
        if random_call is None or not random_call.draws or written_names(operation):
            return args
        layouts, arguments = iter(random_call.layouts), list(args)
        for at, value in enumerate(args):
            if not isinstance(value, torch.Tensor):
                continue
            size, stride = next(layouts, ((), ()))
            # The stride of a dimension of one element is irrelevant. With a stride of 0 all elements share memory.
            steps = [(own, drawn) for own, drawn, n in zip(value.stride(), stride, size, strict=False) if n > 1]
            differ = value.size() == size and any(own != drawn for own, drawn in steps)
            if not differ or not all(drawn for _, drawn in steps):
                continue
            clone = torch.ops.aten.clone.default
            noted_call = self._log.take(OpCall(clone, (value,), {}), replace(place, sequence=None))
            arguments[at] = torch.empty_strided(size, stride, dtype=value.dtype, device=value.device).copy_(value)
            self._log.complete(noted_call, arguments[at], ())
            source = node.args[at]
            self.copies[len(self._log.calls) - 1] = value_key(source) if isinstance(source, torch.fx.Node) else None
        return tuple(arguments)

    def _in_layout(self, key: ValueKey, value: Any) -> Any:
        """Return the value in its wanted layout. A view is returned unchanged."""
        wanted = self._layouts.get(key)
        if wanted is None or not isinstance(value, torch.Tensor) or self._log.table.slot_of(value) is not None:
            return value
        return value if layout_of(value) == layout_of(wanted) else laid_out_like(wanted, value)


def flat_outputs(node: torch.fx.Node) -> list[Any]:
    """Return the results of a graph from its output node."""
    outputs = node.args[0]
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def layout_of(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride())


def laid_out_like(wanted: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a copy of the value in new memory, in the layout of `wanted`.

    Raise NotReplayable if their sizes or dtypes differ.
    """
    if wanted.size() != value.size() or wanted.dtype != value.dtype:
        raise NotReplayable(
            f"a compiled graph returns {wanted.dtype} {tuple(wanted.size())} where its nodes return "
            f"{value.dtype} {tuple(value.size())}"
        )
    data = torch.zeros(wanted.untyped_storage().nbytes(), dtype=torch.uint8, device=value.device)
    made = torch.empty(0, dtype=wanted.dtype, device=value.device)
    made.set_(data.untyped_storage(), wanted.storage_offset(), wanted.size(), wanted.stride())
    return made.copy_(value)


# The sites of compiled graphs' nodes in the step: their module, their line, and the group that they belong to.


class NodeNames:
    """The numbers and names of one step's nodes.

    `run` is the number of an execution; a backward has the same number as its forward.
    """

    def __init__(self, script: str) -> None:
        self._script = script
        self._sequences: dict[Hashable, int] = {}
        self._groups: dict[Hashable, int] = {}
        self._modules: dict[Hashable, str] = {}
        self._paths: dict[Hashable, Mapping[str, str]] = {}
        self._callers: dict[Hashable, str | None] = {}

    def entered(self, graph: CompiledGraph, run: int, frames: ModuleFrames) -> None:
        """Note the modules that a graph's nodes belong to. Call this before the graph's forward is executed."""
        stacks = (stack_of(node) for node in graph.module.graph.nodes)
        self._paths[graph.region, run] = frames.paths(innermost_module(stack) for stack in stacks if stack)
        self._callers[graph.region, run] = frames.current

    def describe(self, graph: CompiledGraph, run: int, node: torch.fx.Node) -> CompiledNode:
        origin = node.meta.get("original_aten")
        if is_operation_overload(node.target):
            origin = op_behind(node.target) or origin
        call = node.meta.get(CALL)
        key = (run, graph.phase, node.name) if call is None else (run, call)
        return CompiledNode(
            graph.name,
            node.name,
            str(origin if is_operation_overload(origin) else node.target),
            self._groups.setdefault(key, len(self._groups)),
        )

    def sequence(self, run: int, node: torch.fx.Node) -> int | None:
        """Return a negative number that this node shares only with its counterparts in the forward or backward."""
        number = sequence_of(node)
        return None if number is None else self._sequences.setdefault((run, number), -len(self._sequences) - 1)

    def module(self, graph: CompiledGraph, run: int, node: torch.fx.Node) -> str | None:
        """Return the path of the node's module. A backward node has the path of its forward node."""
        execution, sequence = (graph.region, run), self.sequence(run, node)
        key = (*execution, sequence)
        path: str | None = None
        if stack := stack_of(node):
            expression, _ = innermost_module(stack)
            path = self._paths.get(execution, {}).get(expression, path_in_source(expression))
        elif key in self._modules:
            return self._modules[key]
        elif graph.phase == "forward" and node.meta.get("stack_trace"):
            path = self._callers.get(execution, "")
        if graph.phase == "forward" and sequence is not None and path is not None:
            self._modules.setdefault(key, path)
        return path

    def frames(self, node: torch.fx.Node) -> tuple[str, ...]:
        """Return the user's frames inside the compiled region, as the compiler recorded them, innermost first."""
        return frames_in(str(node.meta.get("stack_trace") or ""), self._script)

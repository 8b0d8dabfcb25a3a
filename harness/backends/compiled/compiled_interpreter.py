"""A compiled graph executed node by node on the tape, each op by torch's own kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ... import torch_private
from ...tape.call_log import CallLog, given_by
from ...tape.compiled_probes import ValueKey
from ...tape.op_places import Place
from ...tape.tape import Call, CompiledNode, NotReplayable

SIZES = "sym_"
"""How the names of the ops begin that only read a size."""


@dataclass(frozen=True, slots=True, eq=False)
class Interpreted:
    """A node that is on the tape as the call number `position`, which gave `count` tensors: fresh outputs, then what it wrote.

    `given` are these and `outputs` all that it gave, both empty where they are not kept; a random node's `given` always is.
    `swapped` is what executed the node in place of the op that the call names.
    """

    position: int
    node: torch.fx.Node
    call: Call
    outputs: list[Any]
    given: list[torch.Tensor]
    count: int
    swapped: Callable[..., Any] | None


@dataclass(frozen=True, slots=True)
class Described:
    """What the tape says of a node."""

    place: Place
    line: str | None
    compiled: CompiledNode


class Interpreter:
    """Executes one graph once. `layouts` are the tensors in whose layout some of its values are wanted.

    Unless it shall `keep` them, values are let go when no later node takes them.
    """

    def __init__(
        self,
        log: CallLog,
        describe: Callable[[torch.fx.Node], Described],
        layouts: Mapping[ValueKey, torch.Tensor],
        *,
        keep: bool,
    ) -> None:
        self.done: list[Interpreted] = []
        self._log = log
        self._describe = describe
        self._layouts = layouts
        self._keep = keep
        self._values: dict[torch.fx.Node, Any] = {}

    def run(self, module: torch.fx.GraphModule, inputs: list[Any]) -> list[Any]:
        """The graph's outputs. Raises NotReplayable for a graph that cannot be taken apart."""
        given = iter(inputs)
        ending = _last_taken(module.graph)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = next(given)
            elif node.op == "get_attr":
                self._values[node] = _attribute(module, str(node.target))
            elif node.op == "call_function":
                self._values[node] = self._called(node)
            elif node.op == "output":
                return [self._value(one) for one in flat_outputs(node)]
            for one in ending.get(node, ()):
                del self._values[one]
        raise NotReplayable("a compiled graph gives nothing")

    def _value(self, argument: Any) -> Any:
        return torch.fx.node.map_arg(argument, lambda node: self._values[node])

    def _called(self, node: torch.fx.Node) -> Any:
        args, kwargs = self._value(node.args), self._value(node.kwargs)
        operation: Any = node.target
        if not torch_private.is_operation_overload(operation):
            if getattr(operation, "__module__", "") in ("_operator", "math", "torch", "builtins"):
                return operation(*args, **kwargs)
            raise NotReplayable(f"a compiled graph calls {operation}, which a tape cannot take apart")
        if operation.name().partition("::")[2].startswith(SIZES):
            return operation(*args, **kwargs)
        operation = _possible(operation, args)
        described = self._describe(node)
        execute, swapped = operation, torch_private.op_behind(operation)
        if swapped is not None:
            execute, args = functools.partial(operation, args[0]), args[1:]
            operation = swapped
        taken = self._log.take(operation, args, kwargs, described.place, grad=False)
        outputs = self._relaid(node, execute(*args, **kwargs))
        call = self._log.complete(operation, args, kwargs, taken, outputs, described.line, described.compiled)
        results = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        given = given_by(call, operation, args, kwargs, results)
        kernel = None if swapped is None else execute
        kept = given if self._keep or call.draw is not None else []
        self.done.append(
            Interpreted(
                len(self._log.calls) - 1,
                node,
                call,
                results if self._keep else [],
                kept,
                len(given),
                kernel,
            )
        )
        return outputs

    def _relaid(self, node: torch.fx.Node, outputs: Any) -> Any:
        """The outputs of a node in the layouts that they are wanted in; views stay what they are."""
        if any(user.target is torch.ops.aten.as_strided.default for user in node.users):
            return outputs
        if not isinstance(outputs, (list, tuple)):
            return self._in_layout((node.name, 0), outputs)
        return [self._in_layout((node.name, index), one) for index, one in enumerate(outputs)]

    def _in_layout(self, key: ValueKey, value: Any) -> Any:
        wanted = self._layouts.get(key)
        if (
            wanted is None
            or not isinstance(value, torch.Tensor)
            or self._log.table.slot_of(value) is not None
        ):
            return value
        return value if layout_of(value) == layout_of(wanted) else laid_out_like(wanted, value)


def _last_taken(graph: torch.fx.Graph) -> dict[torch.fx.Node, list[torch.fx.Node]]:
    """By node, those whose values no node after it takes."""
    found: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    seen: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        taken = [one for one in (*node.all_input_nodes, node) if one not in seen]
        seen.update(taken)
        if node.op != "output":
            found[node] = taken
    return found


def flat_outputs(node: torch.fx.Node) -> list[Any]:
    """What the output node of a graph gives."""
    found = node.args[0]
    return list(found) if isinstance(found, (list, tuple)) else [found]


def layout_of(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride())


def laid_out_like(wanted: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value in memory of its own that is laid out as another tensor's."""
    if wanted.size() != value.size() or wanted.dtype != value.dtype:
        raise NotReplayable(
            f"a compiled graph gives {wanted.dtype} {tuple(wanted.size())} where its nodes give "
            f"{value.dtype} {tuple(value.size())}"
        )
    data = torch.zeros(wanted.untyped_storage().nbytes(), dtype=torch.uint8, device=wanted.device)
    made = torch.empty(0, dtype=wanted.dtype, device=wanted.device)
    made.set_(data.untyped_storage(), wanted.storage_offset(), wanted.size(), wanted.stride())
    return made.copy_(value)


def _possible(operation: Any, args: Any) -> Any:
    """The op, or `reshape` where a view of memory that is laid out in this way does not exist."""
    if operation is not torch.ops.aten.view.default:
        return operation
    try:
        args[0].view(args[1])
    except RuntimeError:
        return torch.ops.aten.reshape.default
    return operation


def _attribute(module: torch.fx.GraphModule, target: str) -> Any:
    found: Any = module
    for name in target.split("."):
        found = getattr(found, name)
    return found

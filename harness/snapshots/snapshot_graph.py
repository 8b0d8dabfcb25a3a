"""A snapshot's calls as an FX graph for any backend. The graph's inputs are the storages that the execution read."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ..tape.storages import viewed
from ..tape.tape import Call, GeneratorState, NotReplayable, Tape, View, leaves, mapped, views_in
from ..torch_private.dispatching import is_operation_overload, registered_operation
from ..torch_private.operators import schema_of, written_names, written_values
from .snapshot_record import Snapshot

CLONE = torch.ops.aten.clone.default

DROPOUT = "aten.native_dropout.default"
"""A random op that returns its input, times the mask that it draws, times 1 / (1 - p)."""

ALONE = ("bernoulli", "normal", "uniform", "random", "exponential", "geometric", "cauchy", "log_normal")
"""The ops, in place or not, whose results depend only on the draw."""


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotGraph:
    """The graph of a snapshot. It has the snapshot's outputs, in the same order.

    sources: for each placeholder, the view or tensor from which `inputs` creates its value
    is_functional: true if the graph writes to no tensor, except to inputs at its end
    generators: the states of the generators before the first random op that stays in the graph
    """

    module: torch.fx.GraphModule
    tape: Tape
    sources: Sequence[View | torch.Tensor]
    is_functional: bool
    generators: Sequence[GeneratorState]

    def inputs(self) -> list[torch.Tensor]:
        """Return new input tensors with the recorded values and layouts."""
        return [value.clone() if isinstance(value, torch.Tensor) else self._input(value) for value in self.sources]

    def _input(self, view: View) -> torch.Tensor:
        storage = self.tape.inputs[view.slot].to(self.tape.slots[view.slot].device, copy=True)
        return viewed(storage.untyped_storage(), view)


def draws_alone(call: Call) -> bool:
    """Return whether the results of a random op depend only on its draw, and not on the values of a tensor."""
    name = call.name
    return name.rstrip("_") in ALONE or name.endswith("_like") or not any(True for _ in views_in(call))


def scale_of(probability: float) -> float:
    """Return the factor by which a dropout scales the elements that it keeps."""
    return 0.0 if probability == 1.0 else 1.0 / (1.0 - probability)


def graph_of(snapshot: Snapshot, *, keep_draws: bool) -> SnapshotGraph:
    """Return the graph of a snapshot.

    Random ops are replaced by the recorded draws; with `keep_draws` they stay in the graph. Raises NotReplayable.
    """
    return _Building(snapshot, keep_draws=keep_draws).built()


class _Building:
    """Builds the graph call by call, and keeps track of the node for each view of each storage."""

    def __init__(self, snapshot: Snapshot, *, keep_draws: bool) -> None:
        self._snapshot = snapshot
        self._tape = snapshot.tape
        self._keep_draws = keep_draws
        self._graph = torch.fx.Graph()
        self._nodes: dict[View, torch.fx.Node] = {}
        self._bases: dict[int, tuple[torch.fx.Node, View]] = {}
        self._sources: list[View | torch.Tensor] = []
        self._generators: list[GeneratorState] = []
        self._writes = False

    def built(self) -> SnapshotGraph:
        draws = [call for call in self._tape.calls if self._is_drawn(call)]
        # Each storage that exists before the execution has one placeholder, with the storage's largest view. The other
        # views are derived from it with as_strided.
        views_by_slot: dict[int, dict[View, None]] = {slot: {} for slot in self._tape.inputs}
        ports = [port.view for port in self._snapshot.inputs]
        for view in [*ports, *(view for call in self._tape.calls for view in views_in(call))]:
            if view.slot in views_by_slot:
                views_by_slot[view.slot].setdefault(view)
        for slot, views in views_by_slot.items():
            if not views:
                continue
            base = max(views, key=lambda view: view.extent)
            if any(view.extent > base.extent or view.dtype != base.dtype for view in views):
                raise NotReplayable("the bytes of an input are used as several dtypes")
            node = self._placeholder(base)
            self._nodes[base] = node
            self._bases[slot] = (node, base)
        # The drawn values are inputs too, since they replace the random ops.
        drawn = [tensor for call in draws if call.draw is not None for tensor in call.draw.drawn]
        placeholders = {id(tensor): self._placeholder(tensor) for tensor in drawn}
        early: dict[int, torch.fx.Node] = {}
        for position, call in enumerate(self._tape.calls):
            for number, watched_value in enumerate(self._tape.watched):
                if watched_value.position == position:  # cloned, since later calls may write to the value
                    early[number] = self._graph.call_function(CLONE, (self._node(watched_value.view),))
            if self._is_drawn(call):
                self._drawn(call, placeholders)
            else:
                self._call(call)
        watched = enumerate(self._tape.watched)
        outputs = [early.get(number) or self._node(watched_value.view) for number, watched_value in watched]
        if self._snapshot.error and self._tape.calls:
            outputs.append(self._graph.call_function(*self._called(self._tape.calls[-1])))
        self._graph.output(tuple(outputs))

        def is_impure(node: torch.fx.Node) -> bool:
            # An op that writes to a tensor must stay even if nothing uses its result.
            if node.op in ("placeholder", "output"):
                return True
            return is_operation_overload(node.target) and bool(written_names(node.target))

        self._graph.eliminate_dead_code(is_impure)
        module = torch.fx.GraphModule(torch.nn.Module(), self._graph)
        return SnapshotGraph(module, self._tape, self._sources, not self._writes, self._generators)

    def _is_drawn(self, call: Call) -> bool:
        if call.draw is None:
            return False
        if self._keep_draws:
            self._generators += [] if self._generators else list(call.draw.states)
            return False
        if not draws_alone(call) and call.op != DROPOUT:
            raise NotReplayable(f"{call.op} draws random numbers, and another backend draws different ones")
        return True

    def _placeholder(self, value: View | torch.Tensor) -> torch.fx.Node:
        self._sources.append(value)
        return self._graph.placeholder(f"input_{len(self._sources) - 1}")

    def _node(self, view: View) -> torch.fx.Node:
        known_node = self._nodes.get(view)
        if known_node is not None:
            return known_node
        if view.slot not in self._bases:
            raise NotReplayable("a call takes a tensor that no recorded call returned")
        base, seen_as = self._bases[view.slot]
        if view.dtype != seen_as.dtype:
            raise NotReplayable("the bytes of a tensor are also used as another dtype")
        arguments = (base, list(view.size), list(view.stride), view.offset)
        node = self._graph.call_function(torch.ops.aten.as_strided.default, arguments)
        self._nodes[view] = node
        return node

    def _called(self, call: Call) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return the op of a call and its arguments as nodes."""
        operation = registered_operation(call.op)
        if operation is None:
            raise NotReplayable(f"torch {torch.__version__} has no op {call.op} here")

        def value(recorded: Any) -> Any:
            if isinstance(recorded, View):
                return self._node(recorded)
            if isinstance(recorded, GeneratorState):
                raise NotReplayable(f"{call.op} takes a generator as an argument")
            return torch.device("cpu") if isinstance(recorded, torch.device) else recorded

        # The positional arguments come first, since views become nodes in the order in which they are used.
        arguments = mapped(value, call.arguments)
        return operation, arguments, {name: mapped(value, argument) for name, argument in call.keywords.items()}

    def _call(self, call: Call) -> None:
        if call.outputs and not any(isinstance(output, View) for output in call.outputs):
            return  # the result is a number, and later calls have the recorded number as their argument
        operation, args, kwargs = self._called(call)
        written = written_values(operation, call.arguments, call.keywords)
        targets = [target for target in leaves(list(written)) if isinstance(target, View)]
        node = self._graph.call_function(operation, args, kwargs)
        # A functional graph may end with a copy into an input; any other write makes the graph non-functional.
        is_end = call.op == "aten.copy_.default" and all(target.slot in self._tape.inputs for target in targets)
        self._writes = self._writes or (bool(targets) and not is_end)
        returns = schema_of(operation).returns
        lists = [str(returned.type).startswith("List") for returned in returns]
        if len(returns) > 1 and any(lists):
            raise NotReplayable(f"{call.op} returns lists among other results")
        several = len(returns) > 1 or (len(lists) == 1 and lists[0])
        for index, view in enumerate(call.outputs):
            if not isinstance(view, View):
                continue
            result = self._graph.call_function(operator.getitem, (node, index)) if several else node
            self._nodes[view] = result
            if call.fresh[index]:
                self._bases[view.slot] = (result, view)

    def _drawn(self, call: Call, placeholders: dict[int, torch.fx.Node]) -> None:
        """Replace a random op's outputs with the drawn values, and copy these into the tensors that the op wrote."""
        assert call.draw is not None
        drawn, aten = list(call.draw.drawn), torch.ops.aten
        if call.op == DROPOUT:
            # result = input * mask * 1 / (1 - p): only the mask was drawn
            source, probability = self._node(call.arguments[0]), float(call.arguments[1])
            mask = placeholders[id(drawn[1])]
            masked = self._graph.call_function(aten.mul.Tensor, (source, mask))
            result = self._graph.call_function(aten.mul.Scalar, (masked, scale_of(probability)))
            for view, node in zip(call.outputs, (result, mask), strict=True):
                self._nodes[view] = node
                self._bases[view.slot] = (node, view)
            return
        operation = registered_operation(call.op)
        for view, fresh in zip(call.outputs, call.fresh, strict=True):
            if isinstance(view, View):
                value = placeholders[id(drawn.pop(0))]
                if fresh:
                    self._nodes[view] = value
                    self._bases[view.slot] = (value, view)
        written = written_values(operation, call.arguments, call.keywords)
        for view in leaves(list(written)):
            if isinstance(view, View):
                self._writes = True
                arguments = (self._node(view), placeholders[id(drawn.pop(0))])
                self._nodes[view] = self._graph.call_function(aten.copy_.default, arguments)

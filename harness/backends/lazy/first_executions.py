"""The first execution of each node of a step's lazy graphs, by which repetitions are recognized.

Values that a graph did not keep are computed again by the next graph that needs them:

    h = tanh(x @ w); y = clamp(h)     graph 1, executed because an op falls back to the CPU:    t_copy, mm, tanh, clamp
    loss.backward()                   graph 2, executed by the mark_step:                       t_copy, mm, tanh, ...

A repetition that gives the same results does not change the step, so it is not recorded again. A dropout that is
executed once more draws another mask. It is recorded, as is everything that reads it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from ...tape.recording.call_log import NotedCall
from ...tape.tape import Call

NodeKey = tuple[int, int]
"""The identity of a node in all graphs of a step: the number of its call, and its index among the call's nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class FirstExecution:
    """The first execution of a node in a step.

    position: the position of its call on the tape.
    noted: the call's note.
    outputs: the call's results.
    is_pure: True if the call has neither drawn random numbers nor written to its arguments.
    """

    position: int
    noted: NotedCall
    outputs: Any
    is_pure: bool

    def is_repeated_by(self, noted: NotedCall) -> bool:
        """Return whether another execution of the op gives the same results."""
        return self.is_pure and (noted.arguments, noted.keywords) == (self.noted.arguments, self.noted.keywords)


class FirstExecutions:
    """The first executions of the nodes of a step."""

    def __init__(self) -> None:
        self._of_node: dict[Hashable, FirstExecution] = {}
        self._of_op: dict[str, list[FirstExecution]] = {}
        self._called_before = self._called = 0

    def next_graph(self, called: int) -> None:
        """Begin another graph. `called` is the number of calls that the step has made so far."""
        self._called_before, self._called = self._called, called

    def of(self, key: NodeKey | None) -> FirstExecution | None:
        """Return the first execution of a node, None if there is none."""
        return self._of_node.get(key)

    def with_same_results(self, key: NodeKey | None, noted: NotedCall) -> FirstExecution | None:
        """Return an execution whose results an execution of this node repeats, None if there is none.

        TorchScript executes only one of several equal nodes, in each graph another one. So if an earlier graph has not
        executed this node although it was called by then, an equal node is looked for.
        """
        first = self.of(key)
        if first is None and key is not None and key[0] < self._called_before:
            equal = self._of_op.get(str(noted.call.operation), ())
            return next((execution for execution in equal if execution.is_repeated_by(noted)), None)
        return first if first is not None and first.is_repeated_by(noted) else None

    def add(self, key: NodeKey | None, noted: NotedCall, call: Call, position: int, outputs: Any) -> None:
        """Add an execution of a node, if it is the node's first."""
        if key is not None and key not in self._of_node:
            is_pure = call.draw is None and not noted.call.written
            execution = self._of_node[key] = FirstExecution(position, noted, outputs, is_pure)
            self._of_op.setdefault(call.op, []).append(execution)

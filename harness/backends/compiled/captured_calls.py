"""The calls of compiled code in a recorded step: the graph that dynamo captured, its inputs, and its backwards.

On the tape, such a call is represented by the calls of ops between its `first` and `last`. In place of these ops,
`recompiled_step` executes the captured graph, compiled again by another backend or with other settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...tape.recording.call_log import CallLog
from ...tape.recording.compiled_graphs import CapturedGraph
from ...tape.tape import NotReplayable, View, in_words


@dataclass(frozen=True, slots=True, eq=False)
class CapturedCall:
    """One call of a captured graph.

    first, last: the index of its first op on the tape, and the index after its last op.
    inputs, outputs: its inputs and outputs, with a view in place of each tensor.
    differentiable: for each input, whether it needs a gradient.
    grad: whether gradients were enabled.
    autocast: the dtype of autocast, by each device type for which it was enabled.
    generators: the states of the random generators before the call, by device.
    forwards: the inputs of the forward graphs that were executed in the call, by the number of their execution.
    """

    graph: CapturedGraph
    first: int
    last: int
    inputs: Sequence[Any]
    differentiable: Sequence[bool]
    outputs: Sequence[Any]
    grad: bool
    autocast: Mapping[str, torch.dtype]
    generators: Mapping[str, torch.Tensor]
    forwards: Mapping[int, Sequence[View | None]]


@dataclass(frozen=True, slots=True, eq=False)
class BackwardCall:
    """One execution of a compiled backward.

    forward: the number of the forward execution that it belongs to.
    first, last: the index of its first op on the tape, and the index after its last op.
    tangents: the gradients of the captured call's outputs, by the number of the output.
    gradients: its results, in the order of the forward graph's inputs, None for an input without a gradient.
    generators: the states of the random generators before the execution, by device.
    """

    forward: int
    first: int
    last: int
    tangents: Mapping[int, View]
    gradients: Sequence[View | None]
    generators: Mapping[str, torch.Tensor]


@dataclass(slots=True, eq=False)
class CapturedCalls:
    """The captured calls of one step. `reason` says why some are missing, "" if none is."""

    calls: list[CapturedCall] = field(default_factory=list)
    backwards: list[BackwardCall] = field(default_factory=list)
    reason: str = ""

    @contextmanager
    def complete(self) -> Iterator[None]:
        """Keep a failure within the context as the `reason` instead of raising it.

        The tape is complete without the captured calls.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001, it is kept
            self.reason = self.reason or (str(error) if isinstance(error, NotReplayable) else in_words(error))


class OpenCall:
    """A captured graph that is being called. The forward graphs that are executed in the call fill `forwards`."""

    def __init__(
        self,
        log: CallLog,
        graph: CapturedGraph,
        inputs: Sequence[Any],
        generators: Mapping[str, torch.Tensor],
        *,
        grad: bool,
    ) -> None:
        self.forwards: dict[int, Sequence[View | None]] = {}
        self._log = log
        devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}
        self._call = CapturedCall(
            graph=graph,
            first=len(log.calls),
            last=len(log.calls),
            inputs=viewed_by(log, inputs, are_inputs=True),
            differentiable=[isinstance(value, torch.Tensor) and value.requires_grad for value in inputs],
            outputs=(),
            grad=grad,
            autocast={kind: torch.get_autocast_dtype(kind) for kind in devices if torch.is_autocast_enabled(kind)},
            generators=generators,
            forwards=self.forwards,
        )

    def returned(self, outputs: Any) -> CapturedCall:
        """Return the call with these outputs. Raise NotReplayable if one is a tensor that is not on the tape."""
        flat = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        views = viewed_by(self._log, flat, are_inputs=False)
        return replace(self._call, last=len(self._log.calls), outputs=views)


def viewed_by(log: CallLog, values: Sequence[Any], *, are_inputs: bool) -> list[Any]:
    """Return the values with a view in place of each tensor.

    If the values are inputs, a tensor that is not on the tape is added to it. Otherwise NotReplayable is raised.
    """
    viewed = []
    for value in values:
        if isinstance(value, torch.Tensor):
            if not are_inputs and log.table.slot_of(value) is None:
                raise NotReplayable("a compiled call returns a tensor that none of its graphs returned")
            viewed.append(log.table.view(value.detach(), is_input=are_inputs))
        else:
            viewed.append(value)
    return viewed


def tangents_of(graph: torch.fx.Graph) -> dict[int, int]:
    """Return the inputs of a backward graph that are gradients of its forward's results.

    The dictionary maps the number of each such input to the number of the result. Raise NotReplayable for the gradient
    of another value: of an input that the forward has written to, or of the base of a view.
    """
    tangents: dict[int, int] = {}
    for number, node in enumerate(graph_node for graph_node in graph.nodes if graph_node.op == "placeholder"):
        described = node.meta.get("desc")
        kind = type(described).__name__
        if kind == "TangentAOTInput" and type(described.output).__name__ == "PlainAOTOutput":
            tangents[number] = int(described.output.idx)
        elif kind == "TangentAOTInput" or (described is None and node.name.startswith("tangents_")):
            raise NotReplayable(
                f"{node.name} of a compiled backward is the gradient of a value that its forward did not return"
            )
    return tangents

"""One execution of a compiled graph as a snapshot: its graph executed op by op on copies, beside what it
really gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...backends.compiled.compiled_interpreter import Described, Interpreter, NodeNames
from ...backends.compiled.unrolling import written_inputs
from ...records.execution_facts import INPUTS, OUTPUTS
from ...tape.call_log import CallLog, CallValues, NotedCall, raising
from ...tape.compiled_graphs import CompiledGraph
from ...tape.ensemble import in_words
from ...tape.op_places import OpPlace
from ...tape.replay import generator_state, set_generator_state
from ...tape.tape import Tape, Watched
from ...torch_private.taping import bare_execution
from .camera import Wish
from .own_draws import draws_own
from .snapshot_record import AFTERWARDS, Circumstances, Port, Reason, Snapshot, watched_output

OTHER_DRAWS = (
    "it draws random numbers by Inductor's own generator, which only Inductor has: ops executed one by one draw others"
)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledExecution:
    """An execution that is about to begin: `inputs` are the script's own tensors, `copies` are they as they
    are now, and `generators` the states of the generators. `ports` are the names of inputs and outputs."""

    graph: CompiledGraph
    wish: Wish
    around: Circumstances
    ports: tuple[Sequence[str], Sequence[str]]
    dynamic: bool
    inputs: Sequence[Any]
    copies: Sequence[Any]
    generators: Mapping[str, torch.Tensor]

    def snapshot(self, outputs: Sequence[Any], names: NodeNames, reason: Reason, error: str = "") -> Snapshot:
        """What the execution was, which gave `outputs`, or `error`."""
        log, copies = _NotingLog(), list(self.copies)
        inputs = [
            Port(name, log.table.view(one, is_input=True))
            for name, one in zip(self.ports[0], copies, strict=True)
            if isinstance(one, torch.Tensor)
        ]
        after = {device: generator_state(device) for device in self.generators}
        results: list[Any] | None = None
        unplayable = ""
        try:
            _set_generators(self.generators)
            with bare_execution():
                results = self._interpreted(log, copies, names)
        except Exception as failure:  # noqa: BLE001, the snapshot says why it cannot be replayed
            if error and log.last is not None:
                log.calls.append(raising(*log.last, None))
            elif not error:
                unplayable = f"its graph cannot be executed op by op: {in_words(failure)}"
        finally:
            _set_generators(after)
        ports, watched = self._given(log, copies, outputs, results)
        devices = tuple(sorted({slot.device for slot in log.table.slots}))
        held = tuple(one for one in self.wish.held if one != OUTPUTS or not error)
        table = log.table
        notes = () if not any(map(draws_own, log.calls)) else (OTHER_DRAWS,)
        return Snapshot(
            self.wish.execution,
            replace(self.around, devices=devices),
            reason,
            held,
            tuple(inputs),
            tuple(ports),
            Tape(
                self.wish.execution.step,
                table.slots,
                table.inputs if INPUTS in held else {},
                tuple(log.calls),
                tuple(watched),
            ),
            unplayable=unplayable,
            error=error,
            dynamic=self.dynamic,
            notes=notes,
        )

    def _interpreted(self, log: CallLog, copies: list[Any], names: NodeNames) -> list[Any]:
        graph, run = self.graph, self.wish.execution.count

        def describe(node: torch.fx.Node) -> Described:
            place = OpPlace(
                "backward" if graph.phase == "backward" else "forward",
                names.module(graph, node),
                names.sequence(run, node),
            )
            return Described(place, names.line(node), names.describe(graph, run, node))

        return Interpreter(log, describe, {}, keep=False).run(graph.module, list(copies))

    def _given(
        self, log: CallLog, copies: Sequence[Any], outputs: Sequence[Any], results: Sequence[Any] | None
    ) -> tuple[list[Port], list[Watched]]:
        """What the execution really gave, each at the place where the op by op execution gives the same."""
        triples = list(zip(self.ports[1], outputs, results if results is not None else outputs, strict=False))
        for index in written_inputs(self.graph.module.graph).values() if outputs else ():
            triples.append((f"{self.ports[0][index]}{AFTERWARDS}", self.inputs[index], copies[index]))
        ports: list[Port] = []
        watched: list[Watched] = []
        position = len(log.calls)
        for name, real, stands in triples:
            if not isinstance(real, torch.Tensor) or not isinstance(stands, torch.Tensor):
                continue
            view = log.table.view(stands.detach(), is_input=results is not None)
            value = real.detach().cpu().clone()
            watched.append(watched_output(len(watched), position, view, value))
            ports.append(Port(name or f"output {len(ports)}", view))
        return ports, watched


class _NotingLog(CallLog):
    """Knows the call that was begun last: the one that has raised, if one has."""

    def __init__(self) -> None:
        super().__init__(CallValues())
        self.last: tuple[Any, NotedCall] | None = None

    def take(
        self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], place: OpPlace, *, grad: bool
    ) -> NotedCall:
        taken = super().take(operation, args, kwargs, place, grad=grad)
        self.last = (operation, taken)
        return taken


def _set_generators(states: Mapping[str, torch.Tensor]) -> None:
    for device, state in states.items():
        set_generator_state(device, state)

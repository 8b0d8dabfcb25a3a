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
from ...tape.random_calls import RandomCalls
from ...tape.replay import generator_state, set_generator_state
from ...tape.tape import Tape, Watched
from ...torch_private.dispatching import bare_execution
from .camera import Wish
from .snapshot_record import AFTERWARDS, Circumstances, Port, Reason, Snapshot, draws_own, watched_output

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
        results, unplayable = self._interpreted(log, copies, names, error)
        # What the execution really gave, each at the place where the op by op execution gives the same. The inputs that
        # it has written come last.
        given = list(zip(self.ports[1], outputs, results if results is not None else outputs, strict=False))
        for index in written_inputs(self.graph.module.graph).values() if outputs else ():
            given.append((f"{self.ports[0][index]}{AFTERWARDS}", self.inputs[index], copies[index]))
        ports: list[Port] = []
        watched: list[Watched] = []
        for name, real, stands in given:
            if isinstance(real, torch.Tensor) and isinstance(stands, torch.Tensor):
                view = log.table.view(stands.detach(), is_input=results is not None)
                watched.append(watched_output(len(watched), len(log.calls), view, real.detach().cpu().clone()))
                ports.append(Port(name or f"output {len(ports)}", view))
        held = tuple(one for one in self.wish.held if one != OUTPUTS or not error)
        table, calls = log.table, tuple(log.calls)
        return Snapshot(
            self.wish.execution,
            replace(self.around, devices=tuple(sorted({slot.device for slot in table.slots}))),
            reason,
            held,
            tuple(inputs),
            tuple(ports),
            Tape(self.wish.execution.step, table.slots, table.inputs if INPUTS in held else {}, calls, tuple(watched)),
            unplayable=unplayable,
            error=error,
            dynamic=self.dynamic,
            notes=(OTHER_DRAWS,) if any(map(draws_own, calls)) else (),
        )

    def _interpreted(
        self, log: _NotingLog, copies: list[Any], names: NodeNames, error: str
    ) -> tuple[list[Any] | None, str]:
        """What the graph gives op by op, from the state that the generators had; None where it cannot be executed
        so, and why. Of an execution that raised `error` it is the call that raises."""
        graph, run = self.graph, self.wish.execution.count

        def describe(node: torch.fx.Node) -> Described:
            module, sequence = names.module(graph, node), names.sequence(run, node)
            place = OpPlace("backward" if graph.phase == "backward" else "forward", module, sequence)
            return Described(place, names.frames(node), names.describe(graph, run, node))

        after = {device: generator_state(device) for device in self.generators}
        try:
            for device, state in self.generators.items():
                set_generator_state(device, state)
            with bare_execution():
                return Interpreter(log, describe, {}, RandomCalls(), keep=False).run(graph.module, list(copies)), ""
        except Exception as failure:  # noqa: BLE001, the snapshot says why it cannot be replayed
            if error and log.last is not None:
                log.calls.append(raising(*log.last, ()))
            return None, "" if error else f"its graph cannot be executed op by op: {in_words(failure)}"
        finally:
            # The training draws on as if nothing had been executed beside it.
            for device, state in after.items():
                set_generator_state(device, state)


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

"""The snapshot of a compiled graph's execution: its ops, executed on copies of the inputs, and the actual outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...records.run.execution_facts import INPUTS, OUTPUTS
from ...snapshots.camera import Wish
from ...snapshots.snapshot_record import AFTERWARDS, Circumstances, Port, Reason, Snapshot, draws_own, watched_output
from ...tape.op_places import OpPlace
from ...tape.recording.call_log import CallLog, CallValues, NotedCall, raising
from ...tape.recording.compiled_graphs import CompiledGraph
from ...tape.recording.followed_calls import OpCall
from ...tape.recording.random_calls import RandomCalls
from ...tape.replaying.replay import generator_state, set_generator_state
from ...tape.tape import Tape, Watched, in_words
from ...torch_private.dispatching import bare_execution
from .compiled_interpreter import Described, Interpreter, NodeNames
from .unrolling import written_inputs

OTHER_DRAWS = "it draws random numbers from Inductor's own generator: ops executed one by one draw different numbers"


@dataclass(frozen=True, slots=True, eq=False)
class CompiledExecution:
    """An execution that is about to begin.

    ports: the names of the inputs, and those of the outputs.
    inputs: the script's own tensors.
    copies: copies of the inputs, made before the execution.
    generators: the states of the random generators before the execution, by device.
    """

    graph: CompiledGraph
    wish: Wish
    around: Circumstances
    ports: tuple[Sequence[str], Sequence[str]]
    dynamic: bool
    inputs: Sequence[Any]
    copies: Sequence[Any]
    generators: Mapping[str, torch.Tensor]

    def snapshot(self, outputs: Sequence[Any], names: NodeNames, reason: Reason, error: str = "") -> Snapshot:
        """Return the snapshot of the execution, which returned `outputs` or raised `error`."""
        log, copies = _NotingLog(), list(self.copies)
        inputs = [
            Port(name, log.table.view(value, is_input=True))
            for name, value in zip(self.ports[0], copies, strict=True)
            if isinstance(value, torch.Tensor)
        ]
        results, unplayable = self._interpreted(log, copies, names, error)
        # Pair each actual output with the op-by-op execution's result at the same position. Written inputs come last.
        triples = list(zip(self.ports[1], outputs, results if results is not None else outputs, strict=False))
        for index in written_inputs(self.graph.module.graph).values() if outputs else ():
            triples.append((f"{self.ports[0][index]}{AFTERWARDS}", self.inputs[index], copies[index]))
        ports: list[Port] = []
        watched: list[Watched] = []
        for name, actual, replayed in triples:
            if isinstance(actual, torch.Tensor) and isinstance(replayed, torch.Tensor):
                view = log.table.view(replayed.detach(), is_input=results is not None)
                watched.append(watched_output(len(watched), len(log.calls), view, actual.detach().cpu().clone()))
                ports.append(Port(name or f"output {len(ports)}", view))
        kinds = tuple(kind for kind in self.wish.held if kind != OUTPUTS or not error)
        table, calls = log.table, tuple(log.calls)
        return Snapshot(
            self.wish.execution,
            replace(self.around, devices=tuple(sorted({slot.device for slot in table.slots}))),
            reason,
            kinds,
            tuple(inputs),
            tuple(ports),
            Tape(self.wish.execution.step, table.slots, table.inputs if INPUTS in kinds else {}, calls, tuple(watched)),
            unplayable=unplayable,
            error=error,
            dynamic=self.dynamic,
            notes=(OTHER_DRAWS,) if any(map(draws_own, calls)) else (),
        )

    def _interpreted(
        self, log: _NotingLog, copies: list[Any], names: NodeNames, error: str
    ) -> tuple[list[Any] | None, str]:
        """Execute the graph op by op, after setting the generators to their states before the actual execution.

        Return the results and "", or None and the reason why this fails. If the execution raised `error`, a failure is
        expected: the call that raises becomes the last one on the tape, and the reason is "".
        """
        graph, run = self.graph, self.wish.execution.count

        def describe(node: torch.fx.Node) -> Described:
            module, sequence = names.module(graph, run, node), names.sequence(run, node)
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
                log.calls.append(raising(log.last, ()))
            return None, "" if error else f"its graph cannot be executed op by op: {in_words(failure)}"
        finally:
            # Restore the generators, so that the training's draws are unaffected.
            for device, state in after.items():
                set_generator_state(device, state)


class _NotingLog(CallLog):
    """A log that keeps the latest call in `last`. If a call raised, it is the latest one."""

    def __init__(self) -> None:
        super().__init__(CallValues())
        self.last: NotedCall | None = None

    def take(self, call: OpCall, place: OpPlace) -> NotedCall:
        self.last = super().take(call, place)
        return self.last

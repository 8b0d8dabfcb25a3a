"""Snapshots of lazy executions: the graph that a cut executes for the tensors that the script can see."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...records.run.execution_facts import INPUTS
from ...snapshots.camera import Wish
from ...snapshots.snapshot_record import (
    AFTERWARDS,
    CHANGING,
    Circumstances,
    Port,
    Reason,
    Snapshot,
    bytes_of_tensors,
    watched_output,
)
from ...tape.recording.call_log import CallLog, CallValues
from ...tape.replaying.replay import generator_state, is_same, set_generator_state
from ...tape.tape import Tape, Watched, in_words
from ...torch_private.deferred.lazy import (
    lazy_has_value,
    lazy_tensor_id,
    parsed_torchscript,
    pending_data,
    pending_torchscript,
)
from ...torch_private.dispatching import bare_execution
from ...torch_private.profiling.lazy_work import lazy_counter
from ..deferring.cut_executions import CutExecutions
from .torchscript_tape import executed_graph


@dataclass(frozen=True, slots=True)
class Pending:
    """A graph that is about to be executed.

    roots: the tensors that it computes, by name.
    text: the graph as TorchScript.
    data: the values that it starts from, each with the core's number for it.
    values: the values that the script's tensors already have, by name.
    generator: the state of the CPU's generator before the execution.
    """

    wish: Wish
    roots: Mapping[str, torch.Tensor]
    text: str
    data: Sequence[tuple[int, torch.Tensor]]
    values: Mapping[str, torch.Tensor]
    generator: torch.Tensor

    def snapshot(
        self,
        around: Circumstances,
        names: Mapping[int, str],
        root_values: Mapping[str, torch.Tensor],
        reason: Reason,
    ) -> Snapshot:
        """Return the snapshot of the execution.

        `names` are the names of values by the core's numbers, `root_values` the result of each root.
        """
        log = CallLog(CallValues())
        copies = [value.detach().clone() for _, value in self.data]
        inputs: list[Port] = []
        unnamed: Counter[str] = Counter()
        unmatched = dict(self.values)
        for (number, _), value in zip(self.data, copies, strict=True):
            # A value gets the name known for its number, else that of a named value with the same bits: the core keeps
            # a parameter and the tensor that it was detached from as two values in separate memory.
            name = names.get(number, "")
            if not name and value.dim():
                alike = (
                    candidate_name
                    for candidate_name, candidate in unmatched.items()
                    if candidate.shape == value.shape and is_same(candidate, value)
                )
                name = next(alike, "")
            unmatched.pop(name, None)
            if not name:
                kind = "input" if value.dim() else "number"
                name = f"{kind} {unnamed[kind]}"
                unnamed[kind] += 1
            inputs.append(Port(name, log.table.view(value, is_input=True)))
        results, unplayable = self._executed(log, copies)
        outputs: list[Port] = []
        watched: list[Watched] = []
        for number, (name, value) in enumerate(root_values.items()):
            replayed = value if results is None else results[number]
            view = log.table.view(replayed.detach(), is_input=results is not None)
            changed = name.partition(" ")[0] in CHANGING
            outputs.append(Port(f"{name}{AFTERWARDS}" if changed else name, view))
            watched.append(watched_output(number, len(log.calls), view, value.detach().clone()))
        execution, kinds = self.wish.execution, self.wish.held
        kept_inputs = log.table.inputs if INPUTS in kinds else {}
        tape = Tape(execution.step, log.table.slots, kept_inputs, tuple(log.calls), tuple(watched))
        around = replace(around, devices=("lazy",))
        return Snapshot(execution, around, reason, kinds, tuple(inputs), tuple(outputs), tape, unplayable=unplayable)

    def _executed(self, log: CallLog, copies: Sequence[torch.Tensor]) -> tuple[list[Any] | None, str]:
        """Execute the graph op by op. Return its results and "", or None and the reason why this fails."""
        after = generator_state("cpu")
        try:
            set_generator_state("cpu", self.generator)
            with bare_execution():
                graph = parsed_torchscript(self.text[self.text.index("graph(") :])
                return executed_graph(log, graph, copies), ""
        except Exception as failure:  # noqa: BLE001, the snapshot says why it cannot be replayed
            return None, f"its graph cannot be executed op by op: {in_words(failure)}"
        finally:
            set_generator_state("cpu", after)


class LazyCuts(CutExecutions[Pending]):
    """The observer of the cuts of the mode `lazy`."""

    device = "lazy"
    core = "the lazy core"
    counter = staticmethod(lazy_counter)
    value_id = staticmethod(lazy_tensor_id)

    def _cut(self) -> None:
        if self._open:
            self._cuts += 1
        super()._cut()

    def _look(self) -> Pending | None:
        name, phase = self._phases.named(self._camera)
        wish = self._camera.begins(name, phase)
        if wish is None or self._camera.choice.on == "error":
            return None
        # The pending tensors that the script can see; those without a name are numbered.
        bound = self._bound()
        names_by_id = {id(tensor): name for name, tensor in bound.items()}
        live = [obj for obj in gc.get_objects() if issubclass(type(obj), torch.Tensor) and obj.device.type == "lazy"]
        roots: dict[str, torch.Tensor] = {}
        unnamed = 0
        for tensor in {
            id(candidate): candidate for candidate in [*bound.values(), *live] if candidate.device.type == "lazy"
        }.values():
            if lazy_has_value(tensor):
                continue
            if id(tensor) in names_by_id:
                roots[names_by_id[id(tensor)]] = tensor
            else:
                roots[f"output {unnamed}"] = tensor
                unnamed += 1
        if not roots:
            return None
        data = pending_data(list(roots.values()))
        if not self._camera.has_room(wish, bytes_of_tensors([value for _, value in data])):
            return None
        text = pending_torchscript(list(roots.values()))
        values: dict[str, torch.Tensor] = {}
        for name, tensor in bound.items():
            if tensor.device.type == "lazy" and lazy_has_value(tensor):
                pending_values = pending_data([tensor])  # executes nothing
                values |= {name: pending_values[0][1]} if pending_values else {}
        return Pending(wish, roots, text, data, values, generator_state("cpu"))

    def _values(self, pending: Pending) -> Sequence[tuple[str, torch.Tensor]]:
        return list(zip(pending.roots, self._mode.read(list(pending.roots.values())), strict=True))

    def _snapshot(self, pending: Pending, values: Sequence[tuple[str, torch.Tensor]], reason: Reason) -> Snapshot:
        return pending.snapshot(self._around, self._names, dict(values), reason)

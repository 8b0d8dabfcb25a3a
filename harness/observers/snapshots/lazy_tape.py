"""One execution of the lazy core as a snapshot: its graph executed op by op on copies, beside what it really
gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...records.execution_facts import INPUTS
from ...tape.call_log import CallLog, CallValues
from ...tape.ensemble import in_words
from ...tape.replay import generator_state, is_same, set_generator_state
from ...tape.tape import Tape, Watched
from ...torch_private.lazy import parsed_torchscript
from ...torch_private.taping import bare_execution
from .camera import Wish
from .snapshot_record import AFTERWARDS, Circumstances, Port, Reason, Snapshot, watched_output
from .torchscript_tape import executed_graph

CHANGING = ("parameter", "buffer", "state")
"""What a training changes: where such a tensor is pending, its name also means a value from before."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What is about to be executed: `roots` are the tensors, by name, that the graph computes, `data` the
    values that it starts from, by the number of the core, and `values` those that the script's tensors have.
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
        given: Mapping[str, torch.Tensor],
        reason: Reason,
    ) -> Snapshot:
        """What the execution was; `names` are those of values, `given` is what it gave for each root."""
        log = CallLog(CallValues())
        copies = [value.detach().clone() for _, value in self.data]
        ports = list(self._ports(log, copies, names))
        results, unplayable = self._executed(log, copies)
        outputs: list[Port] = []
        watched: list[Watched] = []
        for number, (name, value) in enumerate(given.items()):
            stands = value if results is None else results[number]
            view = log.table.view(stands.detach(), is_input=results is not None)
            changed = name.partition(" ")[0] in CHANGING
            outputs.append(Port(f"{name}{AFTERWARDS}" if changed else name, view))
            watched.append(watched_output(number, len(log.calls), view, value.detach().clone()))
        inputs = log.table.inputs if INPUTS in self.wish.held else {}
        step = self.wish.execution.step
        return Snapshot(
            self.wish.execution,
            replace(around, devices=("lazy",)),
            reason,
            self.wish.held,
            tuple(ports),
            tuple(outputs),
            Tape(step, log.table.slots, inputs, tuple(log.calls), tuple(watched)),
            unplayable=unplayable,
        )

    def _ports(self, log: CallLog, copies: Sequence[torch.Tensor], names: Mapping[int, str]) -> list[Port]:
        found: list[Port] = []
        unnamed: Counter[str] = Counter()
        left = dict(self.values)
        for (number, _), value in zip(self.data, copies, strict=True):
            name = names.get(number) or _same_value(left, value)
            left.pop(name, None)
            if not name:
                kind = "input" if value.dim() else "number"
                name = f"{kind} {unnamed[kind]}"
                unnamed[kind] += 1
            found.append(Port(name, log.table.view(value, is_input=True)))
        return found

    def _executed(self, log: CallLog, copies: Sequence[torch.Tensor]) -> tuple[list[Any] | None, str]:
        """What the graph gives op by op, None where it cannot be executed so, and why."""
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


def _same_value(values: Mapping[str, torch.Tensor], wanted: torch.Tensor) -> str:
    """What is called by a name and has the same bits, "" where nothing is.

    The core keeps a parameter, and the tensor that it was detached from, as two values in memory of their
    own.
    """
    alike = (
        name for name, one in values.items() if wanted.dim() and one.shape == wanted.shape and is_same(one, wanted)
    )
    return next(alike, "")

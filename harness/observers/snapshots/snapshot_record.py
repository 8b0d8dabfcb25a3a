"""One execution as a snapshot holds it: a tape of its calls, and what its inputs and outputs are to the
script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ...records.execution_facts import INPUTS, OUTPUTS, Execution
from ...tape.tape import Tape, View, Watched

Reason = Literal["chosen", "nonfinite", "error", "drift"]
"""Why a snapshot was taken: somebody asked for it, or something happened."""

AFTERWARDS = " afterwards"
"""How the names of inputs end that the execution has written, as outputs."""

SENSITIVE = {
    "parameter": "parameters",
    "buffer": "buffers",
    "state": "parts of the optimizer's state",
    "gradient": "gradients",
    "input": "inputs of the script, its batch",
    "saved": "what the forward kept, activations or parts of the batch",
}
"""What the first word of a port's name says that a value is, where that may be confidential."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output. `name` says what it is to the script, as `parameter net.0.weight`, `gradient
    net.0.weight`, `input 0`, `loss`, or else which op gave it; `view` is where it is on the tape."""

    name: str
    view: View

    @property
    def kind(self) -> str:
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where an execution took place: the mode's name and specification, the process, and what decides about
    its bits.

    `script` is the training script, `devices` are those of the execution's storages.
    """

    mode: str
    spec: str
    rank: int
    world_size: int
    torch: str
    threads: int
    script: str
    devices: tuple[str, ...] = ("cpu",)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One execution. `tape` has its calls; `held` says whether inputs, outputs or both have values.

    `outputs` belong to the tape's watched values, in their order. `unplayable` says why the calls are not all
    that it was, "" where they are. `error` is what the execution raised. `dynamic` is a graph that was
    compiled for any size.
    """

    execution: Execution
    around: Circumstances
    reason: Reason
    held: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tape: Tape
    unplayable: str = ""
    error: str = ""
    dynamic: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def bytes(self) -> int:
        """What its values take on disk."""
        return bytes_of_tape(self.tape, inputs=INPUTS in self.held, outputs=OUTPUTS in self.held)

    def value_of(self, port: Port) -> torch.Tensor | None:
        """The value of an input, None where it is not held."""
        data = self.tape.inputs.get(port.view.slot)
        if data is None:
            return None
        empty = torch.empty(0, dtype=port.view.dtype, device=data.device)
        return empty.set_(data.untyped_storage(), port.view.offset, port.view.size, port.view.stride)

    def given(self) -> list[torch.Tensor | None]:
        """The values of the outputs, None where they are not held."""
        return [one.value if OUTPUTS in self.held else None for one in self.tape.watched]

    def sensitive(self) -> dict[str, int]:
        """What may be confidential in it, by kind, with how many there are."""
        ports = [
            *(self.inputs if INPUTS in self.held else ()),
            *(self.outputs if OUTPUTS in self.held else ()),
        ]
        kinds = [name.partition(" ")[0] for name in {one.name.removesuffix(AFTERWARDS) for one in ports}]
        return {words: kinds.count(kind) for kind, words in SENSITIVE.items() if kind in kinds}


def bytes_of_tape(tape: Tape, *, inputs: bool, outputs: bool) -> int:
    """Bytes of a tape's values."""
    taken = sum(one.numel() for one in tape.inputs.values()) if inputs else 0
    given = bytes_of_tensors([one.value for one in tape.watched]) if outputs else 0
    drawn = [tensor for call in tape.calls if call.draw is not None for tensor in call.draw.drawn]
    return taken + given + bytes_of_tensors(drawn)


def bytes_of_tensors(values: Sequence[object]) -> int:
    """Bytes of the tensors among these."""
    return sum(one.numel() * one.element_size() for one in values if isinstance(one, torch.Tensor))


def watched_output(number: int, position: int, view: View, value: torch.Tensor) -> Watched:
    """An output as the tape compares it."""
    return Watched(position, f"output {number}", view, value)

"""The contents of a snapshot: a tape of an execution's calls, and the roles of its inputs and outputs in the script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ..records.run.execution_facts import INPUTS, OUTPUTS, Execution
from ..tape.tape import Call, Tape, View, Watched, leaves, views_in

Reason = Literal["chosen", "nonfinite", "error", "drift"]
"""The reason for a snapshot: a user chose it, or an event happened."""

INDUCTOR_RANDOM = "inductor_rand"
"""The part of an op's name that shows that the op draws from Inductor's own generator, as in `prims.inductor_random`
and `prims.inductor_randint`."""

AFTERWARDS = " afterwards"
"""The suffix of an output's name if the output is an input to which the execution has written."""

CHANGING = ("parameter", "buffer", "state")
"""The kinds of tensors that a training updates. While an update is pending, the tensor's name may denote either the old
value or the new one."""

SENSITIVE = {
    "parameter": "parameters",
    "buffer": "buffers",
    "state": "parts of the optimizer's state",
    "gradient": "gradients",
    "input": "inputs of the script, such as its batch",
    "saved": "tensors saved by the forward, such as activations",
}
"""Words for the values that may be confidential, by the first word of a port's name."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output of an execution.

    name: the role of its value in the script, such as `parameter net.0.weight`, `gradient net.0.weight`, `input 0` or
        `loss`; or the op that created the value.
    view: its view on the tape.
    """

    name: str
    view: View

    @property
    def kind(self) -> str:
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True, eq=False)
class Hlo:
    """The HLO module that XLA received, as `text` and as `proto`, a serialized HloModuleProto.

    The module's `parameters` are inputs of the snapshot. Its results are the snapshot's outputs, in the same order.
    """

    text: str
    proto: bytes
    parameters: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances of an execution: its mode, its process, and the facts that determine its bits.

    mode, spec: the mode's name and its specification.
    torch: torch's version.
    script: the training script.
    devices: the devices of the execution's storages.
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
    """One execution.

    held: the parts whose values are kept: inputs, outputs or both.
    outputs: the ports of the tape's watched values, in the same order.
    tape: the execution's calls.
    unplayable: the reason why the calls are not the whole execution, "" if they are.
    error: the error that the execution raised, "" if it raised none.
    dynamic: True for a graph that was compiled for any size.
    hlo: in mode xla, the whole execution as an HLO module.
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
    hlo: Hlo | None = None

    @property
    def bytes(self) -> int:
        """The size of the snapshot's values on disk, in bytes."""
        # The tape has its inputs as tensors of bytes, so `numel` is their size in bytes.
        input_bytes = sum(storage.numel() for storage in self.tape.inputs.values()) if INPUTS in self.held else 0
        output_bytes = bytes_of_tensors([watched.value for watched in self.tape.watched]) if OUTPUTS in self.held else 0
        drawn = [tensor for call in self.tape.calls if call.draw is not None for tensor in call.draw.drawn]
        hlo = len(self.hlo.proto) + len(self.hlo.text) if self.hlo is not None else 0
        return input_bytes + output_bytes + bytes_of_tensors(drawn) + hlo

    def value_of(self, port: Port) -> torch.Tensor | None:
        """Return the value of an input, None if the snapshot does not have it."""
        data = self.tape.inputs.get(port.view.slot)
        if data is None:
            return None
        empty = torch.empty(0, dtype=port.view.dtype, device=data.device)
        return empty.set_(data.untyped_storage(), port.view.offset, port.view.size, port.view.stride)

    def output_values(self) -> list[torch.Tensor | None]:
        """Return the value of each output, None for each if the snapshot does not have the values."""
        return [watched.value if OUTPUTS in self.held else None for watched in self.tape.watched]

    def sensitive(self) -> dict[str, int]:
        """Return the number of values that may be confidential, by their kind in words."""
        ports = [
            *(self.inputs if INPUTS in self.held else ()),
            *(self.outputs if OUTPUTS in self.held else ()),
        ]
        kinds = [name.partition(" ")[0] for name in {port.name.removesuffix(AFTERWARDS) for port in ports}]
        return {words: kinds.count(kind) for kind, words in SENSITIVE.items() if kind in kinds}


def bytes_of_tensors(values: Sequence[object]) -> int:
    """Return the total number of bytes of the tensors among these values."""
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def watched_output(number: int, position: int, view: View, value: torch.Tensor) -> Watched:
    """Return an output as a watched value of the tape."""
    return Watched(position, f"output {number}", view, value)


def draws_own(call: Call) -> bool:
    return INDUCTOR_RANDOM in call.op


def outputs_of_own_draws(tape: Tape) -> frozenset[str]:
    """Return the names of the watched values that depend, directly or through other values, on a draw from Inductor's
    own generator."""

    def slots(values: Iterable[object]) -> Iterator[int]:
        return (leaf.slot for value in values for leaf in leaves(value) if isinstance(leaf, View))

    reached: set[int] = set()
    for call in tape.calls:
        if draws_own(call) or any(view.slot in reached for view in views_in(call)):
            reached.update(slots(call.outputs))
            if call.name.endswith("_"):  # an in-place op writes its first argument
                reached.update(slots(call.arguments[:1]))
    return frozenset(watched.name for watched in tape.watched if watched.view.slot in reached)

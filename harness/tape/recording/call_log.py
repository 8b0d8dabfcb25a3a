"""The log of a step's calls: a note before a call runs, a record after the call, and the digests of the results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...torch_private.accelerators import device_meant
from ...torch_private.dispatching import bare_execution, current_autograd_node
from ..files.journal_writing import bytes_of
from ..large_values import LargeValues
from ..op_names import IN_MEMORY
from ..op_places import OpPlace
from ..replaying.laid_out import LaidOut
from ..replaying.replay import bits_of, generator_state
from ..storages import SlotTable
from ..tape import Call, CompiledNode, Draw, GeneratorState, NotReplayable, View, leaves, mapped
from .followed_calls import OpCall

# Digests, with which values are compared.

SIZE = 16
"""The number of bytes of a digest."""


def digest_of(tensor: torch.Tensor) -> str:
    """Return the first 32 hex digits of the SHA-256 of a tensor's values.

    The values are hashed in row-major order, so the strides do not matter.
    """
    with bare_execution(), torch.no_grad():
        data = bits_of(tensor.cpu())
    return hashlib.sha256(bytes_of(data)).hexdigest()[: 2 * SIZE]


# The results of a step's calls: all digests, and as many values as the budget allows.

VALUE_BUDGET = 2**30
"""The number of bytes of values that are kept for one step. The oldest values are dropped first."""


class CallValues:
    """The results of each call, in order: its fresh outputs, then the arguments that it has written to.

    Two mappings are for calls of compiled graphs. Their keys are the calls' positions:
    swapped: the function that executes the call in place of the compiled kernel
    layouts: the layouts of the call's argument tensors, if the generated code called the op itself
    """

    def __init__(self, budget: int = VALUE_BUDGET) -> None:
        self.digests: list[list[str | None]] = []
        self.notes: list[str] = []
        self.swapped: dict[int, Callable[..., Any]] = {}
        self.layouts: dict[int, list[LaidOut]] = {}
        self._kept: dict[int, list[torch.Tensor]] = {}
        self._free = budget

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        """Add the results of the next call."""
        self.digests.append([digest_of(tensor) for tensor in tensors])

    def set(self, position: int, tensors: Sequence[torch.Tensor | None], *, keep: bool) -> None:
        """Set the results of a call, None for each unknown result.

        With `keep`, the values are kept too, and the tensors must not be changed later.
        """
        self.digests[position] = [None if tensor is None else digest_of(tensor) for tensor in tensors]
        detached = [tensor.detach() for tensor in tensors if tensor is not None]
        if keep and detached and len(detached) == len(tensors):
            self._kept[position] = detached = [value.cpu() for value in detached]
            self._free -= _size(detached)
            # A dict keeps the order of insertion, so the first key is that of the oldest values.
            while self._free < 0 and self._kept:
                oldest = next(iter(self._kept))
                self._free += _size(self._kept.pop(oldest))

    def value(self, position: int) -> list[torch.Tensor] | None:
        """Return the results of a call of a compiled graph, None if they were not kept."""
        return self._kept.get(position)


def _size(values: Sequence[torch.Tensor]) -> int:
    return sum(value.numel() * value.element_size() for value in values)


COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")

PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""The types of arguments that are put on a tape unchanged."""

COMPILED = "CompiledFunction"
"""The prefix of the names of the autograd nodes of compiled regions."""

OPAQUE = "torch.compile compiles a part of the step, and a tape cannot record the ops in it"


def devices_in(values: Iterable[Any]) -> set[torch.device]:
    """Return the devices of the tensors among the values, and the devices that `torch.device`s among them name."""
    placed = [value for value in values if isinstance(value, (torch.Tensor, torch.device))]
    return {device_meant(value) if isinstance(value, torch.device) else value.device for value in placed}


@dataclass(frozen=True, slots=True)
class NotedCall:
    """The note of a call before it runs.

    arguments, keywords: the call's arguments in the form in which they are on the tape
    slot_count: the number of slots before the call's outputs get slots
    generators: the states of the default generators
    generator_arguments: the generators among the arguments, with their states
    """

    call: OpCall
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    place: OpPlace
    slot_count: int
    generators: tuple[GeneratorState, ...]
    generator_arguments: tuple[tuple[torch.Generator, torch.Tensor], ...]


class CallLog:
    """The calls so far, and the slots that they use.

    With `values`, compiled regions are taken apart. `values` then receives the results of each call, and a tensor that
    a region returns is refused only if the tensor has no slot. `large` keeps the inputs of the step.
    """

    def __init__(self, values: CallValues | None = None, large: LargeValues | None = None) -> None:
        self.calls: list[Call] = []
        self.table = SlotTable(large)
        self.values = values

    def take(self, call: OpCall, place: OpPlace) -> NotedCall:
        """Return the note of a call that is about to run. Raises NotReplayable if a tape cannot contain the call."""
        operation = call.operation
        if not call.is_overload:
            raise NotReplayable(f"the step calls the higher-order operator {operation}")
        if operation.namespace in COLLECTIVES:
            raise NotReplayable(f"the step communicates with other processes ({operation})")
        node = current_autograd_node()
        if self.values is None and node is not None and node.name().startswith(COMPILED):
            raise NotReplayable(OPAQUE)
        # The op may draw from the default generator of any device that it runs on, or from a generator among its
        # arguments. Note the states before the op. `complete` finds out which generators have advanced.
        accelerators = sorted({str(device) for device in devices_in(call.values) if device.type not in ("cpu", "meta")})
        generators = [value for value in call.values if isinstance(value, torch.Generator)]

        def argument(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                maker = value.grad_fn
                compiled = maker is not None and maker.name().startswith(COMPILED)
                if compiled and (self.values is None or self.table.slot_of(value) is None):
                    raise NotReplayable(OPAQUE)
                return self.table.view(value, is_input=True)
            if isinstance(value, torch.Generator):
                return GeneratorState(str(value.device), value.get_state())
            if isinstance(value, PLAIN):
                return value
            raise NotReplayable(f"{operation} takes a {type(value).__name__}, which a tape cannot hold")

        return NotedCall(
            call,
            mapped(argument, call.args),
            {name: mapped(argument, value) for name, value in call.kwargs.items()},
            place,
            len(self.table),
            tuple(GeneratorState(device, generator_state(device)) for device in ("cpu", *accelerators)),
            tuple((generator, generator.get_state()) for generator in generators),
        )

    def complete(
        self, noted: NotedCall, outputs: Any, frames: tuple[str, ...], compiled: CompiledNode | None = None
    ) -> Call:
        """Record a call that has run. For a compiled node, the results are not set by this method."""
        results = list(leaves(outputs)) if outputs is not None else []
        recorded: list[Any] = []
        for result in results:
            if not isinstance(result, (torch.Tensor, *PLAIN)):
                kind = type(result).__name__
                raise NotReplayable(f"{noted.call.operation} returns a {kind}, which a tape cannot hold")
            recorded.append(self.table.view(result, is_input=False) if isinstance(result, torch.Tensor) else result)
        # The generators show whether the op drew. The op's tags do not: attention without dropout is also tagged as
        # random.
        draw: Draw | None = None
        argument_moved = any(
            not torch.equal(state, generator.get_state()) for generator, state in noted.generator_arguments
        )
        moved = tuple(
            before for before in noted.generators if not torch.equal(before.state, generator_state(before.device))
        )
        if argument_moved or moved:
            values = [*results, *noted.call.written]
            drawn = [value.detach().to("cpu", copy=True) for value in values if isinstance(value, torch.Tensor)]
            draw = Draw(moved, tuple(drawn))
        fresh = tuple(isinstance(output, View) and output.slot >= noted.slot_count for output in recorded)
        call = _record(noted, frames, tuple(recorded), fresh, draw, compiled)
        self.calls.append(call)
        if self.values is not None:
            self.values.add(produced_by(call, noted.call, results) if compiled is None else [])
        return call


def raising(noted: NotedCall, frames: tuple[str, ...]) -> Call:
    """Return the record of a call that raised an error. The record's only output is None."""
    return _record(noted, frames, (None,), (False,))


def _record(
    noted: NotedCall,
    frames: tuple[str, ...],
    outputs: tuple[Any, ...],
    fresh: tuple[bool, ...],
    draw: Draw | None = None,
    compiled: CompiledNode | None = None,
) -> Call:
    op = str(noted.call.operation)
    return Call(
        op=IN_MEMORY.get(op, op),
        arguments=noted.arguments,
        keywords=noted.keywords,
        outputs=outputs,
        fresh=fresh,
        phase=noted.place.phase,
        module=noted.place.module,
        frames=frames,
        sequence=noted.place.sequence,
        grad=noted.call.grad,
        draw=draw,
        compiled=compiled,
    )


def produced_by(record: Call, call: OpCall, results: list[Any]) -> list[torch.Tensor]:
    """Return the results of a call: its fresh outputs, then the arguments that it has written to."""
    return [*(result for result, fresh in zip(results, record.fresh, strict=True) if fresh), *call.written]

"""Writes down the calls of a step: what is noted before a call runs, what after it, and the digests of what it gave."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..torch_private.accelerators import device_meant
from ..torch_private.dispatching import bare_execution, current_autograd_node, is_operation_overload
from ..torch_private.operators import written_values
from .journal_writing import bytes_of
from .laid_out import LaidOut
from .op_places import OpPlace
from .replay import bits_of, generator_state
from .storages import SlotTable
from .tape import Call, CompiledNode, Draw, GeneratorState, NotReplayable, View, leaves, mapped

# What values are compared by: a digest of their bytes.

SIZE = 16
"""Bytes of a digest."""


def digest_of(tensor: torch.Tensor) -> str:
    """SHA-256, its first 32 hex digits, of the tensor's values in the order of its dimensions, whatever its strides."""
    with bare_execution(), torch.no_grad():
        data = bits_of(tensor.cpu())
    return hashlib.sha256(bytes_of(data)).hexdigest()[: 2 * SIZE]


# What the calls of a step have given: digests of all of it, and the values themselves as far as they may be kept.

VALUE_BUDGET = 2**30
"""Bytes of values that one step keeps; the oldest are let go first."""


class CallValues:
    """For each call, in order, what it has given: its fresh outputs, then the arguments that it has written.

    `swapped` are calls of compiled graphs that another kernel executes, by what executes them, `layouts` those whose op
    the generated code called itself, by how what they took lay then.
    """

    def __init__(self, budget: int = VALUE_BUDGET) -> None:
        self.digests: list[list[str | None]] = []
        self.notes: list[str] = []
        self.swapped: dict[int, Callable[..., Any]] = {}
        self.layouts: dict[int, list[LaidOut]] = {}
        self._kept: dict[int, list[torch.Tensor]] = {}
        self._free = budget

    def add(self, given: Sequence[torch.Tensor]) -> None:
        """Note the next call."""
        self.digests.append([digest_of(one) for one in given])

    def set(self, position: int, given: Sequence[torch.Tensor | None], *, keep: bool) -> None:
        """Say of a call that it has given this, None where that is not known. What is kept must not be changed."""
        self.digests[position] = [None if one is None else digest_of(one) for one in given]
        known = [one.detach() for one in given if one is not None]
        if keep and known and len(known) == len(given):
            self._kept[position] = known = [value.cpu() for value in known]
            self._free -= _size(known)
            # Dicts keep the order of insertion: the first key is the oldest value.
            while self._free < 0 and self._kept:
                oldest = next(iter(self._kept))
                self._free += _size(self._kept.pop(oldest))

    def value(self, position: int) -> list[torch.Tensor] | None:
        """What a call of a compiled graph has given, None where it was not kept."""
        return self._kept.get(position)


def _size(values: Sequence[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in values)


COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")

PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Arguments that are written down as they are."""

COMPILED = "CompiledFunction"
"""How the autograd nodes of compiled regions begin."""

OPAQUE = "a part of the step is compiled by torch.compile, and a tape cannot look into it"


def devices_in(values: Iterable[Any]) -> set[torch.device]:
    """Return the devices of tensors, and those on which what is made on a device among the values comes to be."""
    placed = [value for value in values if isinstance(value, (torch.Tensor, torch.device))]
    return {device_meant(value) if isinstance(value, torch.device) else value.device for value in placed}


@dataclass(frozen=True, slots=True)
class NotedCall:
    """What is noted of a call before it runs."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    place: OpPlace
    grad: bool
    known: int
    generators: tuple[GeneratorState, ...]
    given: tuple[tuple[torch.Generator, torch.Tensor], ...]


class CallLog:
    """The calls so far, and the slots that they are about.

    With `values` compiled regions are taken apart: what each call gives is noted there, and a tensor that
    comes out of a region is refused only where nothing is known of it.
    """

    def __init__(self, values: CallValues | None = None) -> None:
        self.calls: list[Call] = []
        self.table = SlotTable()
        self.values = values

    def take(
        self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], place: OpPlace, *, grad: bool
    ) -> NotedCall:
        """Note a call that is about to run. Raises NotReplayable for what a tape cannot hold."""
        if not is_operation_overload(operation):
            raise NotReplayable(f"the step calls the higher-order operator {operation}")
        if operation.namespace in COLLECTIVES:
            raise NotReplayable(f"the step communicates with other processes ({operation})")
        node = current_autograd_node()
        if self.values is None and node is not None and node.name().startswith(COMPILED):
            raise NotReplayable(OPAQUE)
        given = list(leaves([*args, *kwargs.values()]))
        # The op may draw by the default generator of any device that it runs on, or by one that it is given: their
        # states before it are noted here, and `complete` sees which of them have moved.
        accelerators = sorted({str(device) for device in devices_in(given) if device.type not in ("cpu", "meta")})
        generators = [one for one in given if isinstance(one, torch.Generator)]

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
            mapped(argument, args),
            {name: mapped(argument, value) for name, value in kwargs.items()},
            place,
            grad,
            len(self.table),
            tuple(GeneratorState(one, generator_state(one)) for one in ("cpu", *accelerators)),
            tuple((one, one.get_state()) for one in generators),
        )

    def complete(
        self,
        operation: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        taken: NotedCall,
        outputs: Any,
        frames: tuple[str, ...],
        compiled: CompiledNode | None = None,
    ) -> Call:
        """Write down a call that has run. What a compiled node gave is not known by its outputs here."""
        results = list(leaves(outputs)) if outputs is not None else []
        shown: list[Any] = []
        for one in results:
            if not isinstance(one, (torch.Tensor, *PLAIN)):
                raise NotReplayable(f"{operation} gives a {type(one).__name__}, which a tape cannot hold")
            shown.append(self.table.view(one, is_input=False) if isinstance(one, torch.Tensor) else one)
        # Whether the op drew is told by the generators, not by its tags: an attention without dropout is tagged as
        # random too.
        draw: Draw | None = None
        given_moved = any(not torch.equal(state, generator.get_state()) for generator, state in taken.given)
        moved = tuple(one for one in taken.generators if not torch.equal(one.state, generator_state(one.device)))
        if given_moved or moved:
            drawn = [*results, *written_values(operation, args, kwargs)]
            drawn = [value.detach().to("cpu", copy=True) for value in drawn if isinstance(value, torch.Tensor)]
            draw = Draw(moved, tuple(drawn))
        call = Call(
            op=str(operation),
            arguments=taken.arguments,
            keywords=taken.keywords,
            outputs=tuple(shown),
            fresh=tuple(isinstance(one, View) and one.slot >= taken.known for one in shown),
            phase=taken.place.phase,
            module=taken.place.module,
            frames=frames,
            sequence=taken.place.sequence,
            grad=taken.grad,
            draw=draw,
            compiled=compiled,
        )
        self.calls.append(call)
        if self.values is not None:
            self.values.add(given_by(call, operation, args, kwargs, results) if compiled is None else [])
        return call


def raising(operation: Any, taken: NotedCall, frames: tuple[str, ...]) -> Call:
    """A call that gave an error: in place of outputs it has one None."""
    return Call(
        op=str(operation),
        arguments=taken.arguments,
        keywords=taken.keywords,
        outputs=(None,),
        fresh=(False,),
        phase=taken.place.phase,
        module=taken.place.module,
        frames=frames,
        sequence=taken.place.sequence,
        grad=taken.grad,
        draw=None,
    )


def given_by(
    call: Call, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: list[Any]
) -> list[torch.Tensor]:
    """What a call has given: its fresh outputs, then the arguments that it has written."""
    made = [one for one, fresh in zip(results, call.fresh, strict=True) if fresh]
    written = written_values(operation, args, kwargs)
    return [*made, *(one for one in written if isinstance(one, torch.Tensor))]

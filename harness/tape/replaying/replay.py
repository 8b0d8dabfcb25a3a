"""The execution of a tape: its calls in order, on fresh copies of the inputs, below autograd."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...torch_private.dispatching import bare_execution, registered_operation
from ...torch_private.operators import written_values
from ...torch_private.own_operators import has_kernel
from ..large_values import LargeValues, give_back_pages
from ..storages import Storages
from ..tape import Call, GeneratorState, NotReplayable, Tape, View, Watched, leaves, views_in
from ..uncollected import uncollected

# Read and set the state of a device's default generator.


def generator_state(device: str) -> torch.Tensor:
    """Return the state of the default generator of a device."""
    if device == "cpu":
        return torch.get_rng_state()
    state: torch.Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_generator_state(device: str, state: torch.Tensor) -> None:
    if device == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """A call that computes something, with its op. `ends` are the slots that no later call uses, and `writes` says
    whether the call writes to an argument."""

    position: int
    call: Call
    operation: Any
    ends: tuple[int, ...]
    writes: bool

    def written(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors among these arguments that the op writes to."""
        if not self.writes:
            return []
        values = written_values(self.operation, arguments, keywords)
        return [value for value in values if isinstance(value, torch.Tensor)]

    def written_views(self) -> list[View]:
        """Return the views that the call writes to."""
        call = self.call
        if not self.writes:
            return []
        values = written_values(self.operation, call.arguments, call.keywords)
        return [value for value in values if isinstance(value, View)]


class Arithmetic(Protocol):
    """The arithmetic in which a tape is executed: the dtypes of its values, and the execution of a call."""

    def held(self, recorded: torch.dtype) -> torch.dtype:
        """Return the dtype in which values of a recorded dtype are held."""

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call on these arguments, including those that it writes to, and return its flat outputs."""


class AsRecorded:
    """The recorded arithmetic: an unchanged replay, which reproduces every bit.

    A call that does not repeat is executed for its outputs' memory, and then takes over its settled results.
    """

    def held(self, recorded: torch.dtype) -> torch.dtype:
        return recorded

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        outputs = executed(computation, arguments, keywords)
        if computation.call.settled is not None:
            take_over(computation.call.settled, results(computation, outputs, arguments, keywords))
        return outputs


class Replay:
    """A tape that is ready to be executed any number of times."""

    def __init__(self, tape: Tape) -> None:
        """Prepare a tape. Raises NotReplayable if this torch lacks one of the tape's ops, or a kernel for it."""
        self._tape = tape
        self._executions = executions(tape)
        own = next(
            (computation.call.op for computation in self._executions if not has_kernel(computation.operation)), None
        )
        if own is not None:
            raise NotReplayable(f"the script defines the op {own}, and no other process can execute it")
        last_uses = {slot: computation.position for computation in self._executions for slot in computation.ends}
        self._shown_after: dict[int, list[Watched]] = {}
        self._shown_before: list[Watched] = []
        for watched in sorted(tape.watched, key=lambda value: value.position):
            last_use = last_uses.get(watched.view.slot)
            if last_use is None or watched.position <= last_use:
                self._shown_before.append(watched)
            else:
                self._shown_after.setdefault(last_use, []).append(watched)

    def run(self, arithmetic: Arithmetic, large: LargeValues | None = None) -> dict[str, torch.Tensor]:
        """Return the watched values, in the CPU's memory or where `large` keeps them. Raises what `show` raises."""
        values: dict[str, torch.Tensor] = {}
        copy = (large or LargeValues()).copy

        def keep(name: str, value: torch.Tensor) -> None:
            values[name] = copy(value)

        self.show(arithmetic, keep)
        return {watched.name: values[watched.name] for watched in self._tape.watched}

    def show(self, arithmetic: Arithmetic, seen: Callable[[str, torch.Tensor], None]) -> None:
        """Execute the tape and pass each watched value to `seen`, on its device, in memory that later calls may reuse.

        A value is shown before the call at its position, or right after the last call that uses its slot, whichever
        comes first. Then the slot is freed, so an optimizer's replay needs no memory for all parameters at a time.
        Random generators and the grad mode are restored afterwards. Raises NotReplayable, and any error that an op
        raises on values that differ from the recorded ones.
        """
        storages = Storages(self._tape, arithmetic.held)
        draws = (call.draw for call in self._tape.calls)
        devices = sorted({state.device for draw in draws if draw is not None for state in draw.states})
        pending = deque(self._shown_before)
        with set_apart(devices):
            for computation in self._executions:
                # Show a watched value before executing the call at its position, which may write to it.
                while pending and pending[0].position <= computation.position:
                    watched = pending.popleft()
                    seen(watched.name, storages.tensor(watched.view))
                self._execute(computation, arithmetic, storages)
                for watched in self._shown_after.get(computation.position, ()):
                    seen(watched.name, storages.tensor(watched.view))
                storages.free(computation.ends)
            for watched in pending:
                seen(watched.name, storages.tensor(watched.view))
                storages.free([watched.view.slot])  # no call uses it

    def _execute(self, computation: Computation, arithmetic: Arithmetic, storages: Storages) -> None:
        # This is a separate function so that the call's arguments are freed here, before the next call is executed.
        call = computation.call
        arguments, keywords = call_arguments(call, storages.tensor if computation.writes else storages.read)
        if torch.is_grad_enabled() != call.grad:  # `set_apart` restores it
            torch.set_grad_enabled(call.grad)
        outputs = arithmetic.execute(computation, arguments, keywords)
        storages.take(call, outputs)


def call_arguments(call: Call, tensor: Callable[[View], torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, with `tensor` applied to its views.

    Each generator is created anew, in its recorded state.
    """
    arguments = tuple([_argument(recorded, tensor) for recorded in call.arguments])
    return arguments, {name: _argument(recorded, tensor) for name, recorded in call.keywords.items()}


def _argument(recorded: Any, tensor: Callable[[View], torch.Tensor]) -> Any:
    # A function within `call_arguments` that calls itself would keep `tensor`, and with it a device's memory, until
    # Python looks for garbage.
    if isinstance(recorded, View):
        return tensor(recorded)
    if isinstance(recorded, (list, tuple)):
        return tuple([_argument(item, tensor) for item in recorded])
    if isinstance(recorded, GeneratorState):
        generator = torch.Generator(recorded.device)
        generator.set_state(recorded.state)
        return generator
    return recorded


def executed(computation: Computation, arguments: Iterable[Any], keywords: Mapping[str, Any]) -> list[Any]:
    """Execute a call's op; a random op draws its recorded numbers again."""
    draw = computation.call.draw
    for moved in draw.states if draw is not None else ():
        set_generator_state(moved.device, moved.state)
    outputs = computation.operation(*arguments, **keywords)
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [] if outputs is None else list(leaves(outputs))


def results(
    computation: Computation, outputs: Sequence[Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> list[torch.Tensor]:
    """Return the results of an executed call: its fresh outputs, then the arguments that it has written to."""
    fresh = [output for output, new in zip(outputs, computation.call.fresh, strict=False) if new]
    return [*fresh, *computation.written(arguments, keywords)]


def take_over(values: Sequence[torch.Tensor], into: Sequence[torch.Tensor]) -> None:
    """Write these values into the results of a call."""
    for tensor, value in zip(into, values, strict=True):
        tensor.copy_(value)


def is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors, on any devices, are equal bit for bit; NaNs with the same bits are equal."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    with bare_execution():
        same = torch.equal(bits_of(first), bits_of(second.to(first.device)))
    give_back_pages(first)
    give_back_pages(second)
    return same


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor's values, in the order of its dimensions."""
    flat = tensor.detach().contiguous().reshape(-1)
    # A tensor of one element counts as contiguous whatever its stride is, so `contiguous` keeps the stride. A view of
    # the tensor as bytes needs a stride of 1.
    return flat.as_strided((flat.numel(),), (1,)).view(torch.uint8)


@uncollected()
def executions(tape: Tape) -> list[Computation]:
    """Return the calls of a tape that compute something. Raises NotReplayable if this torch lacks one of its ops."""
    last_use: dict[int, int] = {}
    chosen: list[tuple[int, Call, Any, bool]] = []
    operation_of = functools.cache(registered_operation)
    for position, call in enumerate(tape.calls):
        operation = operation_of(call.op)
        if operation is None:
            raise NotReplayable(f"torch {torch.__version__} has no op {call.op} here")
        # A call that only creates views is left out: the calls that take the views record their slots and layouts.
        computes = any(call.fresh) or call.draw is not None
        computes = computes or any(not isinstance(output, View) for output in call.outputs)
        writes = any(True for _ in written_values(operation, call.arguments, call.keywords))
        if not computes and not writes:
            continue
        chosen.append((position, call, operation, writes))
        for view in (*views_in(call), *(output for output in call.outputs if isinstance(output, View))):
            last_use[view.slot] = position
    ends: dict[int, list[int]] = {}
    for slot, position in last_use.items():
        ends.setdefault(position, []).append(slot)
    return [
        Computation(position, call, operation, tuple(ends.get(position, ())), writes)
        for position, call, operation, writes in chosen
    ]


@contextmanager
def set_apart(devices: Iterable[str]) -> Iterator[None]:
    """Execute the context below autograd and without autocast, and restore the generators afterwards."""
    before = [GeneratorState(device, generator_state(device)) for device in {"cpu", *devices}]
    kinds = {"cpu", *(device.partition(":")[0] for device in devices)}
    # The calls were recorded below autocast, after it had inserted its casts. It would cast the arguments again.
    cast = [kind for kind in sorted(kinds) if torch.is_autocast_enabled(kind)]
    for kind in cast:
        torch.set_autocast_enabled(kind, False)
    try:
        with bare_execution(), torch.no_grad():
            yield
    finally:
        for kind in cast:
            torch.set_autocast_enabled(kind, True)
        for saved in before:
            set_generator_state(saved.device, saved.state)

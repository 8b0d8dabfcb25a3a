"""Record the aten calls that made the pending values of mode `xla`, as the calls of a tape.

torch_xla makes most ops of a script functional: it calls `add_` as `add`, and `t` as `t_copy`. This record keeps views
as views. Each write creates a new slot, so no view shows values that were written after the view was made. Executed on
the CPU, the calls are those of an eager training run.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

from ...tape.origin import script_frames
from ...tape.recording.call_log import PLAIN
from ...tape.recording.followed_calls import FollowedOps, OpCall
from ...tape.tape import Call, NotReplayable, Phase, Slot, View, in_words, leaves, mapped, views_in
from ...torch_private.deferred.xla_tensors import is_pending, xla_value_id
from ...torch_private.dispatching import (
    bare_execution,
    current_autograd_node,
    without_dispatch_modes,
    without_function_modes,
)
from ...torch_private.operators import returns_view, view_behind

BOOKKEEPING = "aten::_propagate_xla_data"
"""The op by which torch_xla determines whose memory a new value gets."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The calls that compute some values, in order.

    numbers: the numbers of these calls among all calls.
    starts: the slots that the calls need and none of them makes.
    """

    calls: tuple[Call, ...]
    numbers: tuple[int, ...]
    starts: tuple[int, ...]


class PendingCalls:
    """The record of calls from `start` to `stop`. Call `forget` to empty it once nothing is pending.

    No pending value is kept alive, since it would become an output of the graph. Copies of drawn values are the
    exception; `released` returns them. The observer of the training sets `phase`. If a call cannot be recorded,
    `reason` says why, and the training continues.
    """

    def __init__(self, script: str) -> None:
        self.phase: Phase = "data"
        self.is_on = False
        self._script = script
        self._mode = FollowedOps(self._before, self._after)
        self.forget()

    def start(self) -> None:
        """Start recording. No value may be pending at that time."""
        if not self.is_on:
            self._mode.__enter__()  # type: ignore[no-untyped-call]
            self.is_on = True

    def stop(self) -> None:
        """Stop recording. May be called twice."""
        if self.is_on:
            self._mode.__exit__(None, None, None)
            self.is_on = False
        self.forget()

    def forget(self) -> None:
        self.reason = ""
        self._calls: list[Call] = []
        self._slots: list[Slot] = []
        self._views: dict[int, View] = {}  # by the number of a value, its current view
        self._alive: dict[int, list[TensorWeakRef]] = {}
        self._starts: dict[int, torch.Tensor] = {}  # by slot, its earlier value, which is available and may be kept
        self._numbers: dict[int, int] = {}  # by the number of a value, the slot that held it before
        self._draws: dict[int, list[torch.Tensor]] = {}  # by the number of a call, copies of its results

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots)

    def pending(self, count: int) -> dict[int, torch.Tensor]:
        """Return the outputs of the graph, by their numbers: the values that are held and not yet computed.

        They are in torch_xla's order. `count` is the expected number of outputs.
        """
        held = {
            number: tensor
            for number, refs in self._alive.items()
            if (tensor := next((obj for ref in refs if (obj := ref()) is not None), None)) is not None
        }
        if sum(map(is_pending, held.values())) < count:
            # Look for values that only tensors detached outside of the mode hold, for example in numdrift's record.
            for obj in gc.get_objects():
                if issubclass(type(obj), torch.Tensor) and _is_on_xla(obj) and xla_value_id(obj) in self._views:
                    held.setdefault(xla_value_id(obj), obj)
        return {number: held[number] for number in sorted(held) if is_pending(held[number])}

    def released(self) -> dict[int, list[torch.Tensor]]:
        """Return and release the copies of the random calls' pending results, by the number of the call."""
        draws, self._draws = self._draws, {}
        return draws

    def view(self, number: int) -> View | None:
        """Return the view of a value by its number, None for a value that no call takes or returns."""
        return self._views.get(number)

    def slots_before(self, numbers: Collection[int], pending: Collection[int]) -> dict[int, int]:
        """Return, by number, the slots of those values that existed before all calls or were read between calls.

        A value that was read is not pending any more.
        """
        made = {view for call in self._calls for view, new in zip(call.outputs, call.fresh, strict=True) if new}
        read = [number for number in numbers if number not in pending]
        read_slots = {number: view.slot for number in read if (view := self._views.get(number)) in made and view}
        return read_slots | {number: self._numbers[number] for number in numbers if number in self._numbers}

    def before(self, slot: int) -> torch.Tensor | None:
        """Return the value that a slot held before all calls, None if it is unknown."""
        return self._starts.get(slot)

    def added(self, value: torch.Tensor) -> View:
        """Add a slot that holds a value in contiguous layout, and return the view of the value."""
        self._slots.append(Slot(value.numel() * value.element_size(), "cpu", value.dtype))
        return laid_out(len(self._slots) - 1, value)

    def stretch(self, wanted: Sequence[View], available: Collection[int]) -> Stretch:
        """Return the calls that compute the views `wanted` from the slots `available`, whose values are known."""
        needed = {view.slot for view in wanted}
        kept: list[int] = []
        for number in range(len(self._calls) - 1, -1, -1):
            call = self._calls[number]
            touched = {view.slot for view in call.outputs if isinstance(view, View)} & needed
            made = {view.slot for view, new in zip(call.outputs, call.fresh, strict=True) if new} & needed
            if touched and not (made and made <= set(available)):
                kept.append(number)
                needed |= {view.slot for view in views_in(call)}
        kept.reverse()
        calls = tuple(self._calls[number] for number in kept)
        makes = {view.slot for call in calls for view, new in zip(call.outputs, call.fresh, strict=True) if new}
        return Stretch(calls, tuple(kept), tuple(sorted(needed - makes)))

    # Recording a call

    def _before(self, call: OpCall) -> OpCall:
        with self._looking():
            # Do this before the op runs: torch_xla writes to some arguments in place, whatever the schema says.
            for tensor in filter(_is_on_xla, call.tensors):
                self._argument(tensor)
        return call

    def _after(self, call: OpCall, outputs: Any) -> None:
        with self._looking():
            self._note(call, outputs)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Hide the context's ops from torch's modes. Keep the first failure as the `reason` instead of raising it."""
        try:
            with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                yield
        except Exception as error:  # noqa: BLE001, the training continues whatever fails here
            self.reason = self.reason or f"an op could not be recorded: {in_words(error)}"

    def _note(self, op_call: OpCall, outputs: Any) -> None:
        operation = op_call.operation
        results = list(leaves(outputs)) if outputs is not None else []
        made = [result for result in results if _is_on_xla(result)]
        if not any(is_pending(tensor) for tensor in made) or operation.name() == BOOKKEEPING:
            return
        if not op_call.is_overload:
            raise NotReplayable(f"the higher-order operator {operation} is called")
        numbers = [xla_value_id(result) if _is_on_xla(result) else None for result in results]
        for number, tensor in zip(numbers, results, strict=True):
            if number is not None:
                self._alive.setdefault(number, []).append(TensorWeakRef(tensor))
        viewing = operation if returns_view(operation) else view_behind(operation)
        if viewing is not None and all(number in self._views for number in numbers):
            return  # detached: the same value
        argument_numbers = {xla_value_id(tensor) for tensor in op_call.tensors if _is_on_xla(tensor)}
        written = [tensor for tensor in op_call.written if _is_on_xla(tensor)]
        for tensor in written:
            self._write(tensor)
        arguments = mapped(self._argument, op_call.args)
        keywords = {name: mapped(self._argument, value) for name, value in op_call.kwargs.items()}
        call = self._call(str(operation), arguments, keywords)
        if viewing is not None and not written:
            views = _viewed(viewing, arguments, keywords)
            if views is not None and len(views) == len(numbers):
                self._views.update(zip(numbers, views, strict=True))  # type: ignore[arg-type]
                fresh = (False,) * len(views)
                self._calls.append(replace(call, op=str(viewing), outputs=tuple(views), fresh=fresh))
                return
        overwritten = {xla_value_id(tensor) for tensor in written}
        new = tuple(number is not None and number not in overwritten for number in numbers)
        for number, tensor, is_new in zip(numbers, results, new, strict=True):
            if number is not None and is_new:
                self._views[number] = self.added(tensor)
                if number in argument_numbers:  # `copy` writes to its first argument
                    self._let_go(number)
        shown = (
            result if number is None else self._views[number] for number, result in zip(numbers, results, strict=True)
        )
        if op_call.is_random:
            with bare_execution():
                self._draws[len(self._calls)] = [drawn.clone() for drawn in (*made, *written)]
        self._calls.append(replace(call, outputs=tuple(shown), fresh=new))

    def _call(self, op: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Call:
        return Call(
            op=op,
            arguments=arguments,
            keywords=keywords,
            outputs=(),
            fresh=(),
            phase="backward" if current_autograd_node() is not None else self.phase,
            module=None,
            frames=script_frames(self._script),
            sequence=None,
            grad=False,
            draw=None,
        )

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor):
            if isinstance(value, PLAIN):
                return value
            raise NotReplayable(f"an op takes a {type(value).__name__}, which a tape cannot hold")
        if not _is_on_xla(value):
            view = self.added(value)
            self._starts[view.slot] = value.clone()
            return view
        number = xla_value_id(value)
        if number not in self._views:
            view = self._views[number] = self.added(value)
            if not is_pending(value):  # a pending value was made by an op that was not observed
                self._starts[view.slot] = value
                self._numbers[number] = view.slot
        return self._views[number]

    def _write(self, tensor: torch.Tensor) -> None:
        """Record a write to a tensor. On the tape, the op writes to a copy, which replaces the tensor."""
        number, before = xla_value_id(tensor), self._argument(tensor)
        after = self._views[number] = self.added(tensor)
        self._alive.setdefault(number, []).append(TensorWeakRef(tensor))
        self._let_go(number)
        call = self._call("aten.clone.default", (before,), {"memory_format": torch.contiguous_format})
        self._calls.append(replace(call, outputs=(after,), fresh=(True,)))

    def _let_go(self, number: int) -> None:
        """Drop a tensor that was kept for its earlier value: it has a new value now, which is pending."""
        if number in self._numbers:
            self._starts.pop(self._numbers[number], None)


def laid_out(slot: int, tensor: torch.Tensor) -> View:
    """Return the view of a value that fills a slot in contiguous layout."""
    size = tuple(tensor.size())
    stride, count = [], 1
    for length in reversed(size):
        stride.append(count)
        count *= max(length, 1)
    return View(slot, tensor.dtype, 0, size, tuple(reversed(stride)))


def _is_on_xla(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "xla"


def _viewed(viewing: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[View] | None:
    """Return an op's results as views of its first argument, None if that argument's memory does not allow a view."""
    base, *rest = arguments
    if not isinstance(base, View):
        return None
    memory = torch.empty(base.extent, dtype=base.dtype, device="meta")
    try:
        with bare_execution():
            viewed = viewing(memory.as_strided(base.size, base.stride, base.offset), *rest, **keywords)
    except RuntimeError:
        return None
    views = list(leaves(viewed))
    if any(view.is_conj() or view.is_neg() for view in views):
        return None
    return [
        View(base.slot, view.dtype, int(view.storage_offset()), tuple(view.size()), tuple(view.stride()))
        for view in views
    ]

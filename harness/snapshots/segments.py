"""Snapshots of eager executions: the forward, the backward and the optimizer of a step, each recorded as a segment.

The outputs of a segment are the inputs that its ops wrote to, and the tensors that its ops created and that are still
alive when the segment ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from ..hooks.mode_protocol import Moment
from ..hooks.observer import Progress
from ..records.run.execution_facts import INPUTS, OUTPUTS
from ..tape.recording.tape_recorder import TapeRecorder
from ..tape.tape import NotReplayable, Tape, View, in_words, leaves
from ..torch_private.compiler.compiling import compiled_frames
from ..torch_private.dispatching import (
    dispatches_itself,
    foreign_dispatch_mode,
    registered_operation,
    without_dispatch_modes,
    without_function_modes,
)
from ..torch_private.operators import written_values
from .camera import Camera, Wish, is_finite
from .snapshot_observer import SnapshotObserver
from .snapshot_record import AFTERWARDS, Circumstances, Port, Reason, Snapshot, watched_output

Bound = Callable[[], Mapping[str, torch.Tensor]]
"""A function that returns the script's tensors by role and name, such as `parameter net.0.weight`."""

BEGINS = ("forward", "backward", "optimizer")


@dataclass(slots=True)
class Segment:
    """A sequence of ops that is being recorded. `names` has the tensors whose names are known at its beginning."""

    wish: Wish
    recorder: TapeRecorder
    names: Mapping[str, torch.Tensor]


class EagerSegments(SnapshotObserver):
    """Records eager executions, at most one at a time. Each report of the training's progress ends the recording."""

    def __init__(self, camera: Camera, around: Circumstances, bound: Bound) -> None:
        self._camera = camera
        self._around = around
        self._bound = bound
        self._segment: Segment | None = None
        self._in_step: Counter[str] = Counter()
        self._error = ""

    def closing(self, moment: Moment, step: int) -> None:
        self._end()

    def reached(self, progress: Progress, step: int) -> None:
        self._end()
        if progress == "step":
            self._in_step.clear()
        if progress in BEGINS:
            self._begin(progress)

    def script_ended(self, failure: str) -> None:
        """Keep the error that ended the script, for the segment that is being recorded."""
        self._error = failure

    def close(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.recorder.stop()

    def _begin(self, phase: str) -> None:
        self._in_step[phase] += 1
        name = self._camera.name_of(self._in_step[phase], phase)
        wish = self._camera.begins(name, phase)
        if wish is None:
            return
        names = {key: tensor for key, tensor in self._bound().items() if not dispatches_itself(tensor)}
        if not self._camera.has_room(wish, 0):
            return
        recorder = TapeRecorder(self._camera.step, self._around.script, modules=not compiled_frames())
        foreign = foreign_dispatch_mode()
        if foreign is not None:
            recorder.give_up(f"a torch dispatch mode of the script is active ({foreign})")
        else:
            recorder.start()
        self._segment = Segment(wish, recorder, names)

    def _end(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        recorder, wish, on = segment.recorder, segment.wish, self._camera.choice.on
        recorder.stop()
        if on == "error" and not self._error:
            return
        try:
            tape = recorder.tape()
        except NotReplayable as error:
            self._camera.tell(
                f"{wish.execution.name} cannot be recorded, so no snapshot of it is taken: {in_words(error)}"
            )
            return
        # The recorder of ops, which may be active too, must not record the ops that are executed here.
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            self._take(segment, tape)

    def _take(self, segment: Segment, tape: Tape) -> None:
        wish, on, recorder = segment.wish, self._camera.choice.on, segment.recorder
        # The names of the segment's storages, each with the view that has the name. A name that was known at the
        # segment's beginning takes precedence over a name at its end, because a gradient may have been replaced.
        now = {key: tensor for key, tensor in self._bound().items() if not dispatches_itself(tensor)}
        names: dict[int, tuple[str, View]] = {}
        for key, tensor in [*segment.names.items(), *now.items()]:
            seen_view = recorder.view_of(tensor)
            if seen_view is not None:
                names.setdefault(seen_view.slot, (key, seen_view))
        outputs: list[tuple[Port, torch.Tensor]] = []
        reason: Reason = "chosen"
        if on == "error":
            reason = "error"
            tape = tape if recorder.raised is None else replace(tape, calls=(*tape.calls, recorder.raised))
        else:
            # The created tensors that are still alive and the inputs that were written, with their latest values.
            for slot, (made_by, view) in made_or_written(tape).items():
                name, seen_as = names.get(slot, (made_by, view))
                value = recorder.alive(seen_as)
                if value is not None:
                    name = f"{name}{AFTERWARDS}" if slot in tape.inputs and slot in names else name
                    outputs.append((Port(name, seen_as), value))
        if on == "nonfinite":
            reason = "nonfinite"
            if all(is_finite(port.name, value) for port, value in outputs):
                return
        kinds = tuple(kind for kind in wish.held if kind != OUTPUTS or on != "error")
        watched = [
            watched_output(number, len(tape.calls), port.view, value.cpu().clone())
            for number, (port, value) in enumerate(outputs)
        ]
        snapshot = Snapshot(
            wish.execution,
            replace(self._around, devices=tuple(sorted({slot.device for slot in tape.slots}))),
            reason,
            kinds,
            tuple(_inputs(tape, names, "input" if wish.execution.phase == "forward" else "saved")),
            tuple(port for port, _ in outputs),
            replace(tape, inputs=tape.inputs if INPUTS in kinds else {}, watched=tuple(watched)),
            error=self._error if on == "error" else "",
        )
        self._camera.take(wish, snapshot)


def made_or_written(tape: Tape) -> dict[int, tuple[str, View]]:
    """Return the slots that the calls of a tape created or wrote, each with the first op that did so and the op's view.

    If an op is called repeatedly, the calls are numbered: `add`, `add_1`.
    """
    views_by_slot: dict[int, tuple[str, View]] = {}
    numbers: Counter[str] = Counter()
    for call in tape.calls:
        name = call.name if not numbers[call.name] else f"{call.name}_{numbers[call.name]}"
        numbers[call.name] += 1
        fresh_views = [output for output, fresh in zip(call.outputs, call.fresh, strict=True) if fresh]
        operation = registered_operation(call.op)
        written = [] if operation is None else written_values(operation, call.arguments, call.keywords)
        for view in [*fresh_views, *leaves(list(written))]:
            if isinstance(view, View):
                views_by_slot.setdefault(view.slot, (name, view))
    return views_by_slot


def _inputs(tape: Tape, names: Mapping[int, tuple[str, View]], unknown: str) -> list[Port]:
    """Return the storages that exist before the tape begins as inputs, with the script's names for them.

    A storage for which the script has no name gets the name `unknown` and a number, and the view of the first call that
    takes the storage.
    """
    first_views: dict[int, View] = {}
    for call in tape.calls:
        for value in leaves([*call.arguments, *call.keywords.values()]):
            if isinstance(value, View):
                first_views.setdefault(value.slot, value)
    ports, unnamed = [], 0
    for slot in tape.inputs:
        if slot in names:
            ports.append(Port(*names[slot]))
        elif slot in first_views:
            ports.append(Port(f"{unknown} {unnamed}", first_views[slot]))
            unnamed += 1
    return ports

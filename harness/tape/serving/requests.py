"""The requests to a worker, and its answers."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...records.modes.mode_spec import ModeSpec
from ...records.run.run_config import RunConfig
from ...records.run.step_files import outcome_file, recompiled_folder
from ...torch_private.dispatching import unseen
from ...torch_private.profiling.device_work import give_back_memory
from ..files.tape_file import TAPES, read_tape, tape_file, write_tape
from ..files.tensor_file import write_tensors
from ..replaying.ensemble import StepNoise, measure_noise, measure_settled, reads_in
from ..replaying.laid_out import LaidOut, relaid
from ..replaying.replay import Computation, call_arguments, executions
from ..replaying.rounding import free_random_numbers
from ..step_settings import settings_of_step
from ..tape import NotReplayable, Tape, View, in_words, views_in
from ..tape_arguments import whole
from .list_calls import TakenApartKernels, taken_apart
from .step_kernels import CallMemory, ReplayedKernels, StepKernels
from .wire import Message, described, tensors_of

# The requests to a worker, with their fields, and its answers (see `wire` for their format):
#
#     facts                            torch's version, the number of threads, the mode, the pid, and the recorded steps
#     noise     step replays edge      the step's noise from replays with random rounding, as in the step's noise file;
#                                      with `"settles": true` the calls that do not repeat are looked for, and the tape
#                                      is settled
#     unwritten step                   reads of memory that no op has written, as in the step's noise file
#     digests   step                   the digests of each call's results in the recorded step
#     notes     step                   the results that could not be observed, and why
#     prepare   step positions         nothing; the request announces the calls that will be executed
#     execute   step position memory   the results of the mode's kernel for the sent inputs; `memory` lists the slots
#                                      with the starts of their spans, and the segments are the spans
#     relaid    step position tensors  as for `execute`, but with arguments in a different layout; `tensors` are
#                                      the call's tensors in order, and the segments are their memory
#     called    step position          the layouts of a call's tensors if the mode's code called the op itself, null
#                                      if they are unknown
#     value     step position          the results of a call in the recorded step, if they were kept
#     recompile step mode name         nothing, or a `reason` for a failure; the step is executed with its graphs
#                                      compiled as in this mode; the outcome is in the `recompiled_folder` of this name
#
# With `"settings": {...}`, the requests `execute` and `relaid` use these settings of torch in place of the step's.
# With `"apart": true`, a request concerns the step with its calls on lists taken apart (see `list_calls`).

OTHERS_SECONDS = 5.0
"""The seconds to wait for other processes on the device to free memory."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldStep:
    """A recorded step with its kernels; `calls` are the calls that compute something, by their position.

    `tape` has no values: a request that needs them reads the tape again, without keeping it.
    """

    tape: Tape
    calls: Mapping[int, Computation]
    kernels: StepKernels


class Requests:
    """The answers to requests. A tape is read at the first request that needs it.

    kernels: the kernels of the recorded steps that were not executed op by op; any other step is replayed
    """

    def __init__(self, config: RunConfig, kernels: Mapping[int, StepKernels]) -> None:
        self._config = config
        self._kernels = kernels
        self._folder = Path(config.journal).parent / TAPES
        self._steps: dict[tuple[int, bool], HeldStep] = {}

    def answer(self, request: Message) -> Message:
        """Return the answer to a request.

        If the device runs out of memory, the request is tried once more after OTHERS_SECONDS: other processes may have
        freed memory by then.

        Raises the errors of ops, and ValueError, TypeError or KeyError for an invalid request.
        """
        try:
            return self._answer(request)
        except torch.OutOfMemoryError:
            give_back_memory()
            time.sleep(OTHERS_SECONDS)
            return self._answer(request)

    def _answer(self, request: Message) -> Message:
        fields = request.fields
        match fields["request"]:
            case "facts":
                steps = [int(path.name[5:11]) for path in self._folder.glob("tape-*.safetensors")]
                return Message({
                    "torch": torch.__version__,
                    "threads": torch.get_num_threads(),
                    "mode": str(self._config.mode),
                    "pid": os.getpid(),
                    "steps": sorted(steps),
                })  # fmt: skip
            case "noise":
                step, options = self._step(request), request.fields
                with settings_of_step(step.tape.settings):
                    replays, edge = whole(options["replays"]), whole(options["edge"])
                    noise = self._noise(step, replays, edge, settles=options.get("settles") is True)
                free_random_numbers()
                give_back_memory()
                return Message({"noise": noise.to_json()})
            case "unwritten":
                step = self._step(request)
                with settings_of_step(step.tape.settings):
                    reads = reads_in(self._tape(step.tape.step))
                give_back_memory()
                return Message({"unwritten": None if reads is None else [read.to_json() for read in reads]})
            case "digests":
                step = self._step(request)
                with settings_of_step(step.tape.settings):
                    digests = step.kernels.digests()
                give_back_memory()
                return Message({"digests": digests})
            case "notes":
                return Message({"notes": list(self._step(request).kernels.notes)})
            case "prepare":
                positions = [whole(position) for position in fields["positions"]]
                self._step(request).kernels.prepare(positions)
                return Message({})
            case "execute":
                return self._executed(request)
            case "relaid":
                return self._relaid(request)
            case "called":
                layouts = self._step(request).kernels.called(whole(fields["position"]))
                return Message({"layouts": None if layouts is None else [layout.to_json() for layout in layouts]})
            case "value":
                kept = self._step(request).kernels.value(whole(fields["position"]))
                if kept is None:
                    return Message({"tensors": None})
                with unseen():
                    values, segments = described(kept)
                return Message({"tensors": values}, segments)
            case "recompile":
                return self._recompiled(request)
            case name:
                raise ValueError(f"no request is called {name!r}")

    def _noise(self, step: HeldStep, replays: int, edge: int, *, settles: bool) -> StepNoise:
        tape = self._tape(step.tape.step)
        if not isinstance(step.kernels, ReplayedKernels):
            return measure_noise(tape, replays, edge, compiled=True)
        noise, settled = measure_settled(tape, replays, edge, always=settles, folder=self._folder)
        if settled is not tape:  # every reader of the tape needs the settled one
            write_tape(tape_file(self._folder, tape.step), settled)
            self._steps.clear()
        return noise

    def _call(self, request: Message) -> tuple[HeldStep, Computation]:
        step, position = self._step(request), whole(request.fields["position"])
        computation = step.calls.get(position)
        if computation is None:
            raise ValueError(f"call {position} of step {step.tape.step} does not exist, or computes nothing")
        return step, computation

    def _call_on_sent_tensors(self, request: Message) -> tuple[HeldStep, Computation, tuple[Any, ...], dict[str, Any]]:
        """Return a step, its call, and the call's arguments with the request's tensors in place of the views."""
        step, computation = self._call(request)
        with unseen():
            tensors = tensors_of(request.fields["tensors"], request.segments)
            views = list(views_in(computation.call))
            if len(tensors) != len(views) or any(
                tensor is None or tuple(tensor.size()) != view.size or tensor.dtype != view.dtype
                for view, tensor in zip(views, tensors, strict=True)
            ):
                op = computation.call.op
                raise ValueError(f"the sent tensors do not have the number, sizes and dtypes that {op} takes")
            sent_tensors = iter(tensors)
            devices = iter(step.tape.slots[view.slot].device for view in views)

            def sent(view: View) -> torch.Tensor:
                tensor, device = next(sent_tensors), next(devices)
                assert tensor is not None
                # A copy on the device may have a different layout, so the sent layout is restored.
                return tensor if device == "cpu" else relaid(tensor.to(device), LaidOut.of(tensor))

            arguments, keywords = call_arguments(computation.call, sent)
        return step, computation, arguments, keywords

    def _relaid(self, request: Message) -> Message:
        step, computation, arguments, keywords = self._call_on_sent_tensors(request)
        with settings_of_step(_in_force(step, request)):
            outputs = step.kernels.execute(computation, arguments, keywords)
        with unseen():
            fresh = [output if new else None for output, new in zip(outputs, computation.call.fresh, strict=True)]
            values, segments = described([*fresh, *computation.written(arguments, keywords)])
        return Message({"outputs": values[: len(fresh)], "written": values[len(fresh) :]}, segments)

    def _executed(self, request: Message) -> Message:
        step, computation = self._call(request)
        with unseen():
            # The spans in the request, by slot.
            slots = len(step.tape.slots)
            listed = request.fields["memory"]
            if not isinstance(listed, list) or len(listed) != len(request.segments):
                raise ValueError("the number of listed spans is not the number of segments")
            content: dict[int, tuple[int, torch.Tensor]] = {}
            for (slot, start), segment in zip(listed, request.segments, strict=True):
                if whole(slot) >= slots or slot in content:
                    raise ValueError(f"slot {slot} does not exist, or is listed twice")
                content[slot] = whole(start), segment
            memory = CallMemory(computation.call, step.tape.slots, content)
            arguments, keywords = memory.arguments()
        # Execute the kernel as in the step: with the step's settings of torch, and under the dispatch and function
        # modes that the script has left active.
        with settings_of_step(_in_force(step, request)):
            outputs = step.kernels.execute(computation, arguments, keywords)
        if len(outputs) != len(computation.call.outputs):
            count = len(computation.call.outputs)
            raise ValueError(f"{computation.call.op} returned {len(outputs)} results, but {count} are recorded")
        fresh = [output if new else None for output, new in zip(outputs, computation.call.fresh, strict=True)]
        with unseen():
            written = list(dict.fromkeys(view.slot for view in computation.written_views()))
            values, segments = described(fresh)
            return Message(
                {"outputs": values, "written": written}, [*segments, *(memory.content(slot).cpu() for slot in written)]
            )

    def _recompiled(self, request: Message) -> Message:
        step, spec = self._step(request), ModeSpec.from_json(request.fields["mode"])
        number = step.tape.step
        path = outcome_file(recompiled_folder(self._folder.parent, str(request.fields["name"])), number)
        try:
            with settings_of_step(step.tape.settings):
                values = step.kernels.recompiled(self._tape(number), spec, self._config.mode)
        except Exception as error:  # noqa: BLE001, a compiler may raise anything
            return Message({"reason": str(error) if isinstance(error, NotReplayable) else in_words(error)})
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {name: value.cpu() for name, value in values.items()}, {"step": number, "mode": str(spec)})
        return Message({})

    def _step(self, request: Message) -> HeldStep:
        step, apart = whole(request.fields["step"]), request.fields.get("apart") is True
        if (step, apart) not in self._steps:
            tape = self._tape(step).without_values()
            kernels = self._kernels.get(step) or ReplayedKernels(lambda: self._tape(step))
            if apart:
                tape, origins = taken_apart(tape)
                kernels = TakenApartKernels(kernels, origins)
            self._steps[step, apart] = HeldStep(tape, {call.position: call for call in executions(tape)}, kernels)
        return self._steps[step, apart]

    def _tape(self, step: int) -> Tape:
        path = tape_file(self._folder, step)
        if not path.exists():
            raise ValueError(f"there is no tape of step {step}")
        return read_tape(path)


def _in_force(step: HeldStep, request: Message) -> dict[str, Any]:
    """Return the settings of torch for a call: those of the step, overridden by those that the request states."""
    settings = request.fields.get("settings", {})
    if not isinstance(settings, dict) or not all(isinstance(value, bool | int | str) for value in settings.values()):
        raise ValueError("the settings are invalid")
    return {**step.tape.settings, **settings}

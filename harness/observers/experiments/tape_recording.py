"""The tapes of a run: chosen steps are recorded, and replayed immediately while the process waits at the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import NotAvailable
from ...hooks.mode_protocol import Mode, Moment
from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.run.run_config import RunConfig
from ...records.run.step_selection import StepSelection
from ...records.values.unfilled_read import write_unfilled
from ...tape.files.earlier_values import files_of_step
from ...tape.files.tape_file import TAPES, tape_file, write_tape
from ...tape.large_values import LargeValues
from ...tape.recording.call_log import OPAQUE, VALUE_BUDGET
from ...tape.recording.step_recorder import RecordingRequest, StepRecorder, StepRecorders
from ...tape.recording.tape_recorder import TapeRecorder
from ...tape.replaying.ensemble import StepNoise, measure_noise, measure_settled, write_noise
from ...tape.serving.step_kernels import StepKernels
from ...tape.storages import is_plain
from ...tape.tape import NotReplayable, Tape, in_words
from ...torch_private.compiler.compiling import compiled_frames
from ...torch_private.dispatching import foreign_dispatch_mode, unseen
from ...torch_private.patches import Patches
from ...torch_private.profiling.compile_work import around_compile_calls
from ...torch_private.profiling.device_work import is_accelerator
from ..calls.compilation_events import compiling_again
from ..state.batches import input_tensors
from ..state.training_state import states_from
from .step_watcher import StepWatcher


class TapeRecording(StepWatcher):
    """Records chosen steps and writes a tape for each into the run's `tapes`, with the noise of the `measured` ones.

    The noise is that of the tape's ops, executed one by one. If the mode executed the step in a different way, its
    kernels are added to `kernels`.

    The training stays the same bit for bit: before the step has ended, nothing but copies is executed, and the
    generators' states are restored after replays. A failure is reported to `notice` and recorded as the reason in the
    step's noise; it is never raised.
    """

    def __init__(
        self,
        config: RunConfig,
        steps: StepSelection,
        mode: Mode,
        notice: Callable[[str], None],
        write: Callable[..., None],
        kernels: MutableMapping[int, StepKernels],
    ) -> None:
        self._config = config
        self._steps = steps
        self._notice = notice
        self._kernels = kernels
        self._folder = Path(config.journal).parent / TAPES
        # The listed steps share one budget for the values that are kept. Without a list, each step has the whole
        # budget.
        count = 1 if steps.is_everything else states_from(steps, 0)
        budget, again = VALUE_BUDGET // count, compiling_again(config.script, write)
        request = RecordingRequest(config.script, budget, self._folder, again, config.quick_tapes)
        recorders = mode.step_recorders(request)
        kind = mode.device.partition(":")[0]
        self._defers = not mode.capabilities.has_values
        self._unavailable = ""
        if recorders is None and (self._defers or kind in DEFERRED_DEVICES):
            self._unavailable = f"on {kind}, an op has no value yet when it is called"
        self._recorders = recorders or StepRecorders(self._recorder_of_ops)
        self._recorder: StepRecorder | None = None
        self._ended: list[tuple[int, StepRecorder]] = []
        # While a script trains, its device has no room for replays. A worker measures the noise afterwards.
        self._leaves_noise = bool(config.serve) and is_accelerator(mode.device)
        self._watches_script = not mode.capabilities.compiles
        self._script_compiles = False
        self._has_left_out = False
        self._patches = Patches("the tapes")

    def install(self) -> None:
        """Begin to watch the graphs of a mode that compiles; in other modes, watch whether the script compiles."""
        if self._unavailable:
            return
        if self._watches_script:
            self._patches.also(around_compile_calls("the tapes", self._script_asks_to_compile))
        try:
            self._recorders.install()
        except NotAvailable as error:
            self._unavailable = str(error)

    def begins(self, step: int) -> None:
        if step not in self._steps:
            return
        try:
            self._recorder = self._recorders.of_step(step)
            if reason := self._unavailable or self._hindrance():
                self._recorder.give_up(reason)
            else:
                self._recorder.start()
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            if self._recorder is not None:
                self._recorder.stop()
                self._recorder = None
            self._failed(step, error)

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        if self._recorder is not None:
            self._recorder.starts_from(values)

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        if self._recorder is not None:
            self._recorder.watch(name, tensor)

    def called_with(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record the arguments of the step's first root module just before its call.

        They are still the script's own: `argument_overwritten` reports each one that a resynced step overwrites.
        """
        if self._recorder is not None:
            with unseen():
                tensors = input_tensors(args, kwargs).items()
                plain = {f"argument {place}": tensor for place, tensor in tensors if is_plain(tensor)}
                self._recorder.called_with(plain)

    def argument_overwritten(self, tensor: torch.Tensor) -> None:
        if self._recorder is not None:
            self._recorder.overwritten(tensor)

    def step_ended(self, step: int) -> None:
        """Write the tape of the step. In a mode that defers ops, it is written once they have been executed."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        if self._defers:
            recorder.over()
            self._ended.append((step, recorder))
        else:
            self._write_step(step, recorder)

    def settled(self, moment: Moment, step: int) -> None:
        ended, self._ended = self._ended, []
        for number, recorder in ended:
            self._write_step(number, recorder)

    def close(self) -> None:
        """Remove every hook. A step that has not ended is abandoned without a notice."""
        recorders, self._recorder = [self._recorder, *(recorder for _, recorder in self._ended)], None
        for recorder in recorders:
            if recorder is not None:
                recorder.stop()
        self._patches.undo()
        self._recorders.remove()

    def _recorder_of_ops(self, step: int) -> StepRecorder:
        # Modules are not followed once the script compiles: dynamo would trace the hooks that follow them.
        large = LargeValues(self._folder)
        return TapeRecorder(step, self._config.script, modules=not self._script_compiles, large=large)

    def _script_asks_to_compile(self, compile_: Callable[[], Any]) -> Any:
        self._script_compiles = True
        if self._recorder is not None:
            self._recorder.forget_modules()
        return compile_()

    def _hindrance(self) -> str:
        """Return the reason why the ops of a step that begins now cannot be recorded; "" if they can be."""
        foreign = foreign_dispatch_mode()
        if foreign is not None:
            return f"a torch dispatch mode of the script is active ({foreign})"
        return OPAQUE if self._script_compiles and compiled_frames() else ""

    def _write_step(self, step: int, recorder: StepRecorder) -> None:
        """Write the tape and its replays' results, and release the tape."""
        try:
            recorder.stop()
            if recorder.put_off:  # another run records the tape if it is needed
                return
            if self._script_compiles and compiled_frames():
                recorder.give_up(OPAQUE)
            if unfilled := recorder.unfilled:
                write_unfilled(self._folder.parent, unfilled)
            measured = self._config.measured is None or step in self._config.measured
            try:
                tape = recorder.tape()
            except NotReplayable as error:
                if measured:
                    self._write_noise(StepNoise(step, reason=str(error)))
                return
            if recorder.left_out and not self._has_left_out:
                self._has_left_out = True
                self._notice(
                    f"from step {step} on, {recorder.left_out}; dense gradients (sparse=False) are taped whole"
                )
            kernels = recorder.kernels(tape)
            if kernels is not None:
                self._kernels[step] = kernels
            replays, edge = self._config.noise_replays, self._config.edge_replays
            # A worker measures the noise of any other step on request.
            measures = measured and not self._leaves_noise and (replays > 0 or kernels is None)
            if kernels is not None or not measures:
                self._write_tape(tape)
            if measures and kernels is not None:
                self._write_noise(measure_noise(tape, replays, edge, compiled=True))
            elif measures:
                noise, tape = measure_settled(tape, replays, edge, folder=self._folder)
                if noise.equal:
                    self._write_tape(tape)
                self._write_noise(noise)
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self._failed(step, error)

    def _write_tape(self, tape: Tape) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        earlier = files_of_step(self._config.earlier, tape.step)
        write_tape(tape_file(self._folder, tape.step), tape, earlier)

    def _write_noise(self, noise: StepNoise) -> None:
        if not noise.equal:
            self._notice(f"step {noise.step} does not replay: {noise.reason}")
        elif noise.dropped:
            self._notice(
                f"step {noise.step}: {noise.dropped} of {noise.dropped + noise.replays} replays with random rounding "
                f"failed and do not count: {noise.failure or 'a discrete choice depends on the last bit'}"
            )
        write_noise(self._folder, noise)

    def _failed(self, step: int, error: Exception) -> None:
        """Report that the tape failed, in a notice and, where it can be written, in the step's noise."""
        try:
            self._write_noise(StepNoise(step, reason=f"recording the tape failed: {in_words(error)}"))
        except OSError as unwritable:
            self._notice(f"the noise of step {step} cannot be written: {unwritable}")

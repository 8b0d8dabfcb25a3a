"""The tapes of a run: chosen steps are recorded and replayed at once, while the process waits at the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...backends.compiled.node_kernels import STEPS, NodeCompiler, RecordedKernels, compile_node
from ...backends.compiled.unrolling import Regions
from ...errors import NotAvailable
from ...hooks.mode_protocol import Mode, Moment
from ...hooks.observer import Observer
from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.modes.mode_spec import INDUCTOR, OP_BY_OP
from ...records.run.run_config import RunConfig
from ...records.values.unfilled_read import write_unfilled
from ...tape.files.tape_file import TAPES, tape_file, write_tape
from ...tape.recording.call_log import OPAQUE, VALUE_BUDGET, CallValues
from ...tape.recording.compiled_graphs import CompiledGraphs
from ...tape.recording.step_recorder import StepRecorder
from ...tape.recording.tape_recorder import TapeRecorder
from ...tape.replaying.ensemble import StepNoise, in_words, measure_noise, write_noise
from ...tape.storages import is_plain
from ...tape.tape import NotReplayable, Tape
from ...torch_private.compiler.compiling import compiled_frames
from ...torch_private.compiler.probing import Boxed
from ...torch_private.dispatching import foreign_dispatch_mode, without_dispatch_modes, without_function_modes
from ...torch_private.patches import Patches
from ...torch_private.profiling.compile_work import around_compile_calls
from ...torch_private.profiling.device_work import is_accelerator
from ..state.batches import tensors_in
from ..state.training_state import states_from
from .compilations_told import told_again


class TapeRecording(Observer):
    """Records chosen steps and writes a tape for each into the run's `tapes`, with the noise of the `measured` ones.

    In a mode that compiles, the noise is that of its graphs' ops, executed one by one. Its steps are in `STEPS`.

    The training stays the same bit for bit: before the step has ended only copies are executed, and the generators'
    states are restored after replays. A failure is reported to `notice` and recorded as the reason in the step's noise;
    it is never raised.
    """

    def __init__(
        self,
        config: RunConfig,
        mode: Mode,
        notice: Callable[[str], None],
        write: Callable[..., None] = lambda event, **fields: None,
    ) -> None:
        self._config = config
        self._told_again = told_again(config.script, write)
        self._notice = notice
        self._folder = Path(config.journal).parent / TAPES
        kind = mode.device.partition(":")[0]
        # A mode whose ops have no values when they are called records a step from its executions.
        self._holds_back = None if mode.capabilities.has_values else mode.step_recorder
        without = kind in DEFERRED_DEVICES and self._holds_back is None
        self._unavailable = f"on {kind} an op has no value when it is called" if without else None
        self._recorder: StepRecorder | None = None
        self._ended: list[tuple[int, StepRecorder]] = []
        # While a training runs, its device has no room for a replay; in a worker it has.
        self._waits = bool(config.serve) and is_accelerator(mode.device)
        self._compiles = mode.capabilities.compiles
        self._script_compiles = False
        self._patches = Patches("the tapes")
        self._graphs: CompiledGraphs | None = None
        self._values: CallValues | None = None
        self._compile: NodeCompiler | None = None
        backend = mode.backend
        if self._compiles and self._unavailable is None and config.tapes is not None and backend not in OP_BY_OP:
            self._compile = compile_node if backend == INDUCTOR else _by_adapter(mode)

    def install(self) -> None:
        """Watch the graphs that the compilers receive; in other modes, watch whether the script compiles."""
        if self._config.tapes is None or self._unavailable is not None:
            return
        if not self._compiles:
            # Modules are not followed once the script compiles: dynamo would trace the hooks that follow them.
            self._patches.also(around_compile_calls("the tapes", self._script_asks_to_compile))
            return
        self._graphs = CompiledGraphs(op_by_op=self._compile is None, told_again=self._told_again)
        try:
            self._graphs.install()
        except NotAvailable as error:
            self._graphs, self._unavailable = None, str(error)

    def begins(self, step: int) -> None:
        if self._config.tapes is None or step not in self._config.tapes:
            return
        try:
            foreign = foreign_dispatch_mode()
            reason = self._unavailable
            if reason is None and foreign is not None:
                reason = f"a torch dispatch mode of the script's own is on ({foreign})"
            elif reason is None and self._script_compiles and compiled_frames():
                reason = OPAQUE
            # All steps share one budget for the values that are kept; if the steps are unlimited, each has a budget.
            count = states_from(self._config.tapes, 0) if self._config.tapes.ranges else 1
            self._values = None if self._graphs is None else CallValues(VALUE_BUDGET // count)
            recorder = self._recorder_of(step)
            self._recorder = recorder
            if reason is None:
                recorder.start()
                if self._graphs is not None:
                    assert isinstance(recorder, TapeRecorder)
                    self._graphs.executor = recorder
            else:
                recorder.give_up(reason)
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self._failed(step, error)

    def _recorder_of(self, step: int) -> StepRecorder:
        if self._holds_back is not None:
            held_back = self._holds_back(step, self._config.script)
            if held_back is None:
                raise NotAvailable("the tape", "an op has no value when it is called, and the mode has no recorder")
            return held_back
        # In compiled graphs each node names the module in which it was written.
        follows = not self._script_compiles and self._graphs is None
        return TapeRecorder(step, self._config.script, modules=follows, values=self._values, unroller=Regions)

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        if self._recorder is not None and self._holds_back is not None:
            self._recorder.starts_from(values)

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        if self._recorder is not None:
            self._recorder.watch(name, tensor)

    def given(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record the arguments of the step's first root module just before it is called; no inputs are loaded yet."""
        if self._recorder is not None:
            with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                tensors = enumerate(tensors_in((*args, *kwargs.values())))
                # a tensor computed from parameters belongs to the training itself
                self._recorder.called_with(
                    {
                        f"argument {place}": tensor
                        for place, tensor in tensors
                        if tensor.grad_fn is None and is_plain(tensor)
                    }
                )

    def given_instead(self, tensor: torch.Tensor) -> None:
        if self._recorder is not None:
            self._recorder.overwritten(tensor)

    def step_ended(self, step: int) -> None:
        """Write the tape of the step. In a mode that defers ops, it is written once they have been executed."""
        if self._holds_back is None:
            self._write_tape(step)
        elif self._recorder is not None:
            self._recorder.over()
            self._ended.append((step, self._recorder))
            self._recorder = None

    def settled(self, moment: Moment, step: int) -> None:
        ended, self._ended = self._ended, []
        for number, self._recorder in ended:
            self._write_tape(number)

    def _write_tape(self, step: int) -> None:
        """Write the tape and its replays' results, and release the tape."""
        recorder, self._recorder = self._recorder, None
        values, self._values = self._values, None
        if recorder is None:
            return
        try:
            recorder.stop()
            if self._graphs is not None:
                self._graphs.executor = None
            elif self._script_compiles and compiled_frames():
                recorder.give_up(OPAQUE)
            measured = self._config.measured is None or step in self._config.measured
            if unfilled := recorder.unfilled:
                write_unfilled(self._folder.parent, unfilled)
            try:
                tape = recorder.tape()
            except NotReplayable as error:
                if measured:
                    self._write(StepNoise(step, reason=str(error)))
                return
            kernels = recorder.kernels(tape)
            if kernels is not None:
                # Its ops were not executed one by one: questions about their kernels go to the worker.
                self._keep(tape)
                STEPS[step] = kernels
                replays, edge = self._config.noise_replays, self._config.edge_replays
                if measured and replays:
                    self._write(measure_noise(tape, replays, edge, compiled=True))
                return
            if self._graphs is not None:
                # The calls' results are kept for questions to the worker after the script has ended.
                assert values is not None
                unroller = recorder.unroller if isinstance(recorder, TapeRecorder) else None
                captured = unroller.captured if isinstance(unroller, Regions) else None
                STEPS[step] = RecordedKernels(tape, values, self._compile, captured)
            if not measured or self._waits:  # whoever needs the noise has the worker measure it
                self._keep(tape)
                return
            if self._graphs is not None:
                self._keep(tape)
                if self._config.noise_replays:
                    noise = measure_noise(tape, self._config.noise_replays, self._config.edge_replays, compiled=True)
                    self._write(noise)
                return
            noise = measure_noise(tape, self._config.noise_replays, self._config.edge_replays)
            if noise.equal:
                self._keep(tape)
            self._write(noise)
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self._failed(step, error)

    def close(self) -> None:
        """Remove every hook. A step that has not ended is abandoned without a notice."""
        recorders, self._recorder = [self._recorder, *(recorder for _, recorder in self._ended)], None
        for recorder in recorders:
            if recorder is not None:
                recorder.stop()
        self._patches.undo()
        if self._graphs is not None:
            self._graphs.remove()

    def _keep(self, tape: Tape) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_tape(tape_file(self._folder, tape.step), tape)

    def _write(self, noise: StepNoise) -> None:
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
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None
        try:
            self._write(StepNoise(step, reason=f"the tape failed: {in_words(error)}"))
        except OSError as unwritable:
            self._notice(f"the noise of step {step} cannot be written: {unwritable}")

    def _script_asks_to_compile(self, compile_: Callable[[], Any]) -> Any:
        self._script_compiles = True
        if self._recorder is not None:
            self._recorder.forget_modules()
        return compile_()


def _by_adapter(mode: Mode) -> NodeCompiler:
    """Return a compiler of graphs that uses the adapter of a plug-in's backend."""
    adapter = mode.adapter()

    def compile_(module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Boxed:
        execute = adapter.compile_graph(module, inputs)
        return lambda boxed: execute(*boxed)

    return compile_

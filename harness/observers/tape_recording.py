"""The tapes of a run: chosen steps recorded, and replayed at once while the process is held at the step."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..backends.compiled.node_kernels import STEPS, NodeCompiler, RecordedKernels, compile_node
from ..backends.compiled.unrolling import Regions
from ..errors import NotAvailable
from ..hooks.mode_protocol import Mode, compiles
from ..hooks.observer import Observer
from ..records.mode_spec import INDUCTOR, OP_BY_OP
from ..records.run_config import RunConfig
from ..tape.call_log import OPAQUE, CallValues
from ..tape.compiled_graphs import CompiledGraphs
from ..tape.ensemble import StepNoise, in_words, measure_noise
from ..tape.tape import NotReplayable
from ..tape.tape_file import TAPES, noise_file, tape_file, write_tape
from ..tape.tape_recorder import TapeRecorder
from ..torch_private.compiling import compiled_frames
from ..torch_private.patches import Patches
from ..torch_private.probing import Boxed
from ..torch_private.script_compiles import around_compile_calls
from ..torch_private.taping import foreign_dispatch_mode
from .operations import WITHOUT_VALUES


class TapeRecording(Observer):
    """Records the steps in the run's `tapes` and writes, for each, its tape and its noise.

    A mode that compiles gets no noise: a replay by eager ops has other bits by design. Its steps are in
    `STEPS`.

    The training keeps every bit: nothing is executed but copies before the step has ended, and what the
    replays use of the generators is put back. A failure is told to `notice` and is the step's reason, never
    an exception.
    """

    def __init__(self, config: RunConfig, mode: Mode, notice: Callable[[str], None]) -> None:
        self._config = config
        self._notice = notice
        self._folder = Path(config.journal).parent / TAPES
        self._unavailable = _unavailable(config, mode)
        self._recorder: TapeRecorder | None = None
        self._compiles = compiles(mode)
        self._script_compiles = False
        self._patches = Patches("the tapes")
        self._graphs: CompiledGraphs | None = None
        self._values: CallValues | None = None
        if config.tapes is None or self._unavailable is not None:
            return
        self._compile: NodeCompiler | None = None
        if self._compiles:
            backend = getattr(mode, "backend", None)
            if backend not in OP_BY_OP:
                self._compile = compile_node if backend == INDUCTOR else _by_adapter(mode)

    def install(self) -> None:
        """Watch what the compilers are given, or that there are any."""
        if self._config.tapes is None or self._unavailable is not None:
            return
        if self._compiles:
            self._unavailable = self._watch_graphs()
        else:
            # Modules are not followed any more once the script compiles: dynamo would trace the hooks that do it.
            self._patches.also(around_compile_calls("the tapes", self._script_asks_to_compile))

    def begins(self, step: int) -> None:
        if self._config.tapes is None or step not in self._config.tapes:
            return
        try:
            reason = self._unavailable or self._in_the_way()
            follows = not self._script_compiles and self._graphs is None
            self._values = None if self._graphs is None else CallValues()
            self._recorder = TapeRecorder(
                step, self._config.script, modules=follows, values=self._values, unroller=Regions
            )
            if reason is None:
                self._recorder.start()
                if self._graphs is not None:
                    self._graphs.executor = self._recorder
            else:
                self._recorder.give_up(reason)
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self._failed(step, error)

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        if self._recorder is not None:
            self._recorder.watch(name, tensor)

    def step_ended(self, step: int) -> None:
        """Replay the step, write what was found, and let the tape go."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        try:
            recorder.stop()
            if self._graphs is not None:
                self._graphs.executor = None
                self._keep(recorder, step)
            else:
                self._write(self._replayed(recorder, step))
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self._failed(step, error)

    def close(self) -> None:
        """Take every hook out; a step that has not ended is given up without a word."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop()
        self._patches.undo()
        if self._graphs is not None:
            self._graphs.remove()

    def _keep(self, recorder: TapeRecorder, step: int) -> None:
        """Write the tape of a step of a compiling mode, and keep what its calls gave."""
        values, self._values = self._values, None
        try:
            tape = recorder.tape()
        except NotReplayable as error:
            self._write(StepNoise(step, reason=str(error)))
            return
        assert values is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        write_tape(tape_file(self._folder, step), tape)
        STEPS[step] = RecordedKernels(tape, values, self._compile)

    def _replayed(self, recorder: TapeRecorder, step: int) -> StepNoise:
        if self._script_compiles and compiled_frames():
            recorder.give_up(OPAQUE)
        try:
            tape = recorder.tape()
        except NotReplayable as error:
            return StepNoise(step, reason=str(error))
        noise = measure_noise(tape, self._config.noise_replays, self._config.edge_replays)
        if noise.equal:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_tape(tape_file(self._folder, step), tape)
        return noise

    def _write(self, noise: StepNoise) -> None:
        if not noise.equal:
            self._notice(f"step {noise.step} does not replay: {noise.reason}")
        elif noise.dropped:
            self._notice(
                f"step {noise.step}: {noise.dropped} of {noise.dropped + noise.replays} replays with random rounding "
                "failed and do not count: a discrete choice (a size, an index) hangs on the last bit"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        path = noise_file(self._folder, noise.step)
        temporary = path.with_name(f"{path.name}.part")
        temporary.write_text(json.dumps(noise.to_json()), encoding="utf-8")
        temporary.replace(path)

    def _failed(self, step: int, error: Exception) -> None:
        """Say that the tape failed, here and in the step's noise where it can be written."""
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder = None
        try:
            self._write(StepNoise(step, reason=f"the tape failed: {in_words(error)}"))
        except OSError as unwritable:
            self._notice(f"the noise of step {step} cannot be written: {unwritable}")

    def _in_the_way(self) -> str | None:
        """Why a tape cannot begin now."""
        mode = foreign_dispatch_mode()
        if mode is not None:
            return f"a torch dispatch mode of the script's own is on ({mode})"
        if self._script_compiles and compiled_frames():
            return OPAQUE
        return None

    def _watch_graphs(self) -> str | None:
        """Take compiled graphs apart; gives the reason where that is not possible."""
        self._graphs = CompiledGraphs(op_by_op=self._compile is None)
        try:
            self._graphs.install()
        except NotAvailable as error:
            self._graphs = None
            return str(error)
        return None

    def _script_asks_to_compile(self, compile_: Callable[[], Any]) -> Any:
        self._script_compiles = True
        if self._recorder is not None:
            self._recorder.forget_modules()
        return compile_()


def _unavailable(config: RunConfig, mode: Mode) -> str | None:
    """Why the mode has no tapes at all."""
    kind = mode.device.partition(":")[0]
    if kind in WITHOUT_VALUES:
        return f"on {kind} an op has no value when it is called"
    return None


def _by_adapter(mode: Mode) -> NodeCompiler:
    """What a plug-in's backend makes of a graph, by its adapter."""
    adapter = mode.adapter()

    def compile_(module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Boxed:
        execute = adapter.compile_graph(module, inputs)

        def boxed(inputs: list[Any]) -> Any:
            return execute(*inputs)

        return boxed

    return compile_

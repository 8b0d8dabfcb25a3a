"""The recorder: what happens in the script's process, step by step, goes into the journal.

It only reads, and only when the mode says that the values are there. A failure of its own is written down as
a notice and ends the recording, never the training; the mode is told of every moment all the same, because it
may act there (the lazy mode executes its graph).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from ..errors import AdoptionError
from ..hooks.guard import Guard
from ..hooks.instruments import Instruments, Surroundings
from ..hooks.mode_protocol import Mode
from ..observers.digest import Digester
from ..observers.ended_step import EndedStep, Table
from ..observers.graph_recording import GraphRecording
from ..observers.operations import WITHOUT_VALUES, OperationRecorder
from ..observers.optimizer_state import bindings
from ..observers.setup_facts import SetupFacts
from ..observers.step_experiments import Experiments
from ..observers.step_writer import StepWriter
from ..records import frames
from ..records.adoption_facts import AdoptionFacts
from ..records.run_config import RunConfig
from ..script.adoption import ScriptAdoption
from ..script.after_step import Waiting
from ..script.connection import connection
from ..script.loss_recording import LossRecording, require_device
from ..script.parallel import is_replicated
from ..script.script_losses import Found
from ..script.training_hooks import Hooks
from ..script.training_tensors import TrainingTensors
from ..script.understood import say_ending, say_parameters, say_step
from ..tape.journal_writing import EventLog
from ..tape.origin import script_line
from .script_words import ScriptWords

SETTLED_STEP = 3
"""From this step on a model that was never called before is none of the training's."""


class Recorder:
    """Observes one script and writes its journal."""

    def __init__(self, config: RunConfig, mode: Mode, log: EventLog, facts: AdoptionFacts) -> None:
        folder = Path(config.journal)
        self.step = 0
        self._config = config
        self._mode = mode
        self._log = log
        self._facts = facts
        self._training = TrainingTensors()
        self.losses = LossRecording(
            config.script,
            self._training,
            log,
            facts,
            getattr(mode, "adopt_function", None),
            self._stop_recording,
            self._tensors_changed,
            self._seems_ended,
        )
        self.adoption = ScriptAdoption(config.script, mode, facts)
        self._hooks = Hooks(self, self.losses, self.adoption.compiles)
        self._table: Table | None = None
        self._digester = Digester()
        self._writer = StepWriter(config, mode, log, self._digester, self.notice)
        self._operations = OperationRecorder(
            folder, self._digester, self._guard("recording an op"), values=config.records("tensors")
        )
        self._with_operations = config.records("ops")
        self._started = time.perf_counter()
        self._broken = self._forgotten = self._in_forward = False
        self._graphs = GraphRecording(config, mode, functools.partial(bindings, self._training), self.notice)
        self._experiments = Experiments(config, mode, self._training, log, self.notice)
        self._setup = SetupFacts(
            config, mode, self._training, self._digester, log, self._guard("recording the setup")
        )
        self._adopting = True
        self._ended_by = ""
        self._words = ScriptWords(
            self, mode, self._operations, facts, config.script, self._guard("hearing the script"),
            lambda: self.losses.seen,
        )  # fmt: skip
        self._instruments = Instruments(self._surroundings, config)
        self._words.hear_phases(self._instruments.phase)

    @property
    def digest_implementation(self) -> str:
        """Which implementation computes the digests, and why it is not the native one."""
        reason = self._digester.reason
        return self._digester.implementation + (f" ({reason})" if reason else "")

    def start(self) -> None:
        """Raises UsageError when this process is being recorded already."""
        connection.open(self._words, Path(self._config.script).name)
        try:
            self._hooks.install()
        except BaseException:
            connection.close()
            self._experiments.leave()
            raise
        if self._config.records("ops") and self._mode.device in WITHOUT_VALUES:
            self._with_operations = False
            with self._guard("saying what is not recorded"):
                self.notice(
                    f"ops are not recorded in this mode: on {self._mode.device} they have no values when they are "
                    "called; losses, parameters and digests are recorded as always"
                )
        self._graphs.install()
        self._instruments.install()
        self._record_operations_of(0)

    def forget(self) -> None:
        """Stop without a trace: this is a fork of the recorded process (a data loader's worker)."""
        self._broken = self._forgotten = True
        self._graphs.forget()
        self._instruments.forget()
        self._experiments.forget()
        self.adoption.forget()
        self._hooks.remove()

    def finish(self, status: str, **facts: Any) -> None:
        """Close the journal with the way the script ended."""
        self._hooks.remove()
        connection.close()
        if self._forgotten:
            return
        self.losses.script_ended()
        with self._guard("closing the journal"):
            self._operations.leave()
            self._experiments.leave()
            self._graphs.closing("end")
            if status != "complete":
                self._instruments.failed(str(facts.get("message", status)))
            self._instruments.reached("closing", self.step)
            self._mode.close("end")
            self._graphs.reached("end", self.step)
            self._instruments.reached("end", self.step)
            self._instruments.close()
            self._graphs.close()
            if not self._broken:
                self._writer.write_said(self._words.take(), self.step)
            self._writer.write_last_values()
        with self._guard("doing what waited for the end of a step"):
            self._words.after_step.settle(self._words.after_step.take())
        if status == "complete" and self._broken:
            facts["message"] = "the recording stopped before the script did"
        if status == "complete":
            with self._guard("closing the journal"):
                say_ending(self._facts, self.step, self.losses.found)
            status, facts = self._strictly(status, facts)
        if status == "complete" and self._writer.nonfinite_from is not None:
            status = "nonfinite"
            facts["message"] = f"the loss is not finite from step {self._writer.nonfinite_from} on"
        with self._guard("closing the journal"):
            self._log.write("end", status=status, steps=self.step, seconds=self._elapsed(), **facts)

    def _strictly(self, status: str, facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        try:
            self._facts.check()
        except AdoptionError as error:
            return frames.REFUSED, facts | {"message": str(error), "exit_code": error.exit_code}
        return status, facts

    def _surroundings(self, options: Mapping[str, Any]) -> Surroundings:
        return Surroundings(
            self._config,
            options,
            self._mode,
            Path(self._config.journal).parent,
            self._training.named,
            self._log.write,
            self.notice,
            functools.partial(bindings, self._training),
        )

    def notice(self, text: str) -> None:
        """Write down something that whoever reads the run should know."""
        self._log.write("notice", step=self.step, text=text)

    def module_called(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.losses.forward_begins()
        if (self._adopting or self.step < SETTLED_STEP) and self._training.add_root(module):
            if self._adopting:
                self._adopt(module)
            else:  # a moving average that is first called to be evaluated: looked at, and left as it is
                self._table = None
        self._instruments.called(module)
        self._setup.called(module, args, kwargs)
        if not self._in_forward:
            self._in_forward = True
            self._instruments.reached("forward", self.step)

    def module_reached(self, module: torch.nn.Module) -> None:
        self._setup.calls_unseen()
        self.module_called(module, (), {})

    def _adopt(self, module: torch.nn.Module) -> None:
        self.adoption.placement.place(module, self._training.optimizers())
        self._table = None
        self._mode.adopt(module)
        self._setup.adopted(self.step, module)
        self._experiments.begin(self.step)
        self._setup.begin_first()
        self._graphs.adopted(module)
        self._instruments.adopted(module)
        with self._guard("describing a model"):
            replicated = {"replicated": True} if is_replicated(module) else {}
            self._log.write("adopted", module=type(module).__name__, step=self.step, **replicated)

    def backward_started(self, losses: list[torch.Tensor], found: Found = "backward") -> None:
        if not self._training.root_classes():
            require_device(losses, self._mode.device)
        started = self.losses.backward_started(losses, found)
        self._experiments.backward_started(self.step, started)
        self._setup.begin_first()
        self._operations.phase = "backward"
        self._graphs.backward_started(losses)
        self._instruments.reached("backward", self.step)

    def step_skipped(self, optimizer: Optimizer) -> None:
        with self._guard("noting a skipped step"):
            source = script_line(self._config.script) or ""
            self._facts.note("step", "steps that the gradient scaler leaves out are steps", source)
        self.step_ended(optimizer)

    def backward_ended(self) -> None:
        self._operations.phase = "optimizer"
        self._experiments.backward_ended()
        self._graphs.closing("backward")
        self._instruments.reached("closing", self.step)
        self._mode.close("backward", self._setup.after_backward(self.step))
        self._graphs.reached("backward", self.step)
        self._instruments.reached("optimizer", self.step)
        self._in_forward = False

    def optimizer_made(self, optimizer: Optimizer) -> None:
        if self._training.add_optimizer(optimizer):
            self._table = None
            self.adoption.placement.optimizer_made(optimizer)
        self._adopting = self.losses.optimized = True

    def step_started(self, optimizer: Optimizer) -> None:
        if self._training.add_optimizer(optimizer):  # one that was made before the recording
            self._table, self.losses.optimized = None, True
        if self._table is None:
            self.losses.optimizer_steps()
        self._setup.optimizer_steps(self.step)

    def step_ended(self, optimizer: Optimizer) -> None:
        self.optimizer_made(optimizer)  # one that was copied was never made
        self._ended_by = self._ended_by or f"when {type(optimizer).__name__}.step() returns"
        self._seems_ended()

    def _seems_ended(self) -> None:
        """The step is over unless the script says itself where its steps end."""
        if not self._words.steps_are_own:
            self.end_step()

    def end_step(self) -> None:
        """The step that is under way is over."""
        self._adopting = False
        watched = self._setup.watches_calls(self.step) or self._words.logged.used or self._config.instruments
        if self.losses.optimized and not watched:
            self._hooks.calls.close()
        number, ended = self.step, None
        with self._guard("ending a step"):
            self._operations.leave()  # before a tape is replayed
        self._experiments.step_ended(self.step)
        with self._guard("ending a step"):
            self._graphs.closing("step")
            if not self._broken:
                ended = self._ended_step()
            if number == 0:
                self._understood()
        self.losses.take(), self._words.take()
        waiting = self._words.after_step.take()
        self.step += 1
        self._instruments.reached("closing", number)
        self._mode.close("step", functools.partial(self._settled, number, ended, waiting))
        self._graphs.reached("step", self.step)
        self._instruments.reached("step", self.step)
        self._in_forward = False
        self._experiments.begin(self.step)
        self._record_operations_of(self.step)
        self._setup.begin()
        self._facts.check()
        if self._config.until is not None and number > self._config.until:
            raise SystemExit(0)

    def _understood(self) -> None:
        """Say what the first step has shown."""
        by = self._ended_by or "where the next forward begins: no optimizer was made"
        if self._words.steps_are_own:
            by = "where the script says so"
        say_step(self._facts, by, script_line(self._config.script) or "")
        named = self._training.named()
        say_parameters(self._facts, named, self._training.root_classes())
        self.adoption.first_step_ended([one.tensor for one in named])

    def _settled(self, step: int, ended: EndedStep | None, waiting: Sequence[Waiting]) -> None:
        if ended is not None:
            self._record(ended)
        self._experiments.settled(step)
        self._words.after_step.settle(waiting)

    def _ended_step(self) -> EndedStep:
        if self._table is None:
            self._table = self._writer.table(self._training.named())
        taken = self.losses.take_gradients()
        gradients = tuple(
            taken.get(named.name) if named.tensor.grad is None else named.tensor.grad
            for named in self._table.tensors
            if named.kind == "parameter"
        )
        return EndedStep(
            self.step, self.losses.take(), gradients, self._table, self._setup.end(), self._words.take()
        )

    def _tensors_changed(self) -> None:
        self._table = None
        if not self.losses.optimized:
            self._setup.found(self.step)

    def _record(self, ended: EndedStep) -> None:
        if self._broken:
            return
        with self._guard("recording a step"):
            self._writer.write(ended, functools.partial(self._setup.describe, ended.setup), self._elapsed())

    def _record_operations_of(self, step: int) -> None:
        with self._guard("recording operations"):
            if self._with_operations and not self._broken and step in self._config.steps:
                self._operations.enter(step)

    def _guard(self, doing: str) -> Guard:
        return Guard(self._stop_recording, doing)

    def _stop_recording(self, doing: str, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            self._operations.stop()
            self.losses.stop()
            self._setup.stop()
            self._log.failed(
                self.step, f"{doing} failed, recording stops here: {type(error).__name__}: {error}"
            )

    def _elapsed(self) -> float:
        return round(time.perf_counter() - self._started, 6)

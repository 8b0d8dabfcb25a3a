"""The recorder: it reports the events in the script's process, step by step, to the observers that record them.

It only reads values, and only when the mode says that they are available. A failure of the recorder is recorded as a
notice and ends the recording, never the training. The mode is still notified of every moment, because it may act at a
moment (the lazy mode executes its graph).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from ..hooks.audience import Audience, Guard, Part, Seat
from ..hooks.mode_protocol import Mode
from ..hooks.observer import Observer, RecordingSurroundings
from ..observers.state.optimizer_state import bindings
from ..observers.values.digest import Digester
from ..observers.values.recording_share import RecordingShare
from ..records.run.adoption_facts import AdoptionFacts
from ..records.run.run_config import RunConfig
from ..script.adopted.adoption import ScriptAdoption
from ..script.changed_execution import ChangedExecution
from ..script.loss_recording import LossRecording, require_device
from ..script.named_tensors import NamedTensor, TrainingTensors
from ..script.parallel import is_replicated
from ..script.script_api import connection
from ..script.script_losses import Found
from ..script.script_settings import FollowedSettings
from ..script.training_hooks import Hooks
from ..script.understood import say_parameters, say_step
from ..tape.files.journal_writing import EventLog
from ..tape.origin import script_line
from ..tape.serving.step_kernels import StepKernels
from .order import ORDER, RECORDING
from .run_end import RunEnd
from .script_words import ScriptWords

SETTLED_STEP = 3
"""From this step on, a model that was never called before is not part of the training."""


class Recorder:
    """Follows one script and reports its events, moment by moment, to its observers (see `order.py`)."""

    def __init__(self, config: RunConfig, mode: Mode, log: EventLog, facts: AdoptionFacts) -> None:
        self.step = 0
        self.kernels: dict[int, StepKernels] = {}
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
            mode.adopt_function,
            self._stop_recording,
            self._tensors_changed,
            self._seems_ended,
        )
        if config.subject is not None:  # what the backward of a call starts from is among the call's results
            self.losses.stop()
        self.adoption = ScriptAdoption(
            config.script, mode, facts, draws_on_the_cpu=config.mode.draws == "cpu", as_is=config.as_is
        )
        compiling = mode.capabilities.compiles or config.as_is or bool(config.instruments) or config.graphs
        self._hooks = Hooks(self, self.losses, self.adoption.compiles, compiling=compiling)
        self._settings = FollowedSettings(config.mode, config.script, facts)
        self._execution = ChangedExecution(config.mode, config.script, facts)
        self._table: list[NamedTensor] | None = None
        self._digester = Digester(notice=self.notice)
        self._share = RecordingShare(config.overhead, log.write)
        self._end = RunEnd(config, mode, log, facts, self._guard)
        self._broken = self._forgotten = self._in_forward = self._begun = False
        self._stepped: dict[int, int] = {}
        self._adopting = True
        self._ended_by = ""
        self._words = ScriptWords(
            self,
            mode,
            facts,
            config.script,
            self._guard("handling the script's calls to numdrift"),
            lambda: self.losses.seen,
        )
        self._audience = Audience(self._observer_failed)
        self._tell = self._audience.tell
        self._audience.take_seats(ORDER, config, self._surroundings)
        self._words.hears_phases = lambda name, begins: self._tell(Observer.phase, name, begins)

    @property
    def digest_implementation(self) -> str:
        """The implementation that computes the digests, and the reason if it is not the native one."""
        reason = self._digester.reason
        return self._digester.implementation + (f" ({reason})" if reason else "")

    def start(self) -> None:
        """Begin recording. Raises UsageError, and leaves no hook behind, if this process is already being recorded."""
        connection.open(self._words, Path(self._config.script).name)
        try:
            self._hooks.install()
            self._settings.install()
            self._execution.install()
            self._tell(Observer.install)
        except BaseException:
            self._execution.close()
            self._settings.close()
            self._hooks.remove()
            self._audience.close()
            connection.close()
            raise

    def forget(self) -> None:
        """Stop without writing anything: this process is a fork of the recorded one, such as a data loader's worker."""
        self._broken = self._forgotten = True
        self._audience.forget()
        self.adoption.forget()
        self._settings.forget()
        self._execution.forget()
        self._hooks.remove()

    def finish(self, status: str, **facts: Any) -> None:
        """Close the journal with the status of the script's end."""
        # Remove the hooks first: the work of closing observers is not part of the training.
        self._hooks.remove()
        self._execution.close()
        self._settings.close()
        connection.close()
        if self._forgotten:
            return
        self.losses.script_ended()
        failure = "" if status == "complete" else str(facts.get("message", status))
        with self._guard("closing the journal"):
            self._tell(Observer.script_ended, failure)
            self._tell(Observer.closing, "end", self.step)
            self._mode.close("end")
            self._tell(Observer.reached, "end", self.step)
        self._audience.close()
        with self._guard("running what the script deferred to the end of a step"):
            self._words.after_step.settle(self._words.after_step.take())
        self._end.write(status, self.step, facts, broken=self._broken, loss_found=self.losses.found)

    def _surroundings(self, seat: Seat) -> RecordingSurroundings:
        return RecordingSurroundings(
            self._config,
            self._config.instruments.get(seat.name, {}),
            self._mode,
            Path(self._config.journal).parent,
            self._training.named,
            self._log.write,
            self.notice,
            functools.partial(bindings, self._training),
            log=self._log,
            training=self._training,
            digester=self._digester,
            table=self._tensors,
            losses=self.losses.take,
            gradients=self.losses.take_gradients,
            logged_values=self._words.take,
            nonfinite=self._end.nonfinite.append,
            fields=self._fields,
            seconds=self._end.seconds,
            phases=self._words.named_phases,
            share=self._share,
            kernels=self.kernels,
            guard=self._audience.guard,
        )

    def tensors(self) -> list[torch.Tensor]:
        """The parameters, buffers, gradients and optimizer states of the training."""
        return [*bindings(self._training).values()]

    def notice(self, text: str) -> None:
        """Record a notice for the reader of the run."""
        self._log.write("notice", step=self.step, text=text)

    def module_called(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.losses.forward_begins()
        if self._training.root_made_anew(module):  # in any step: the new root replaces one that was taken over
            self._execution.adopt(module)
            self._mode.adopt(module)
            self._tell(Observer.taken_over, module, self.step)
        elif (self._adopting or self.step < SETTLED_STEP) and self._training.add_root(module):
            if self._adopting:
                self._adopt(module)
            else:  # such as a moving average that is first called for evaluation: it is recorded, but not taken over
                self._table = None
        self._tell(Observer.called, module)
        self._tell(Observer.called_with, module, args, kwargs)
        if not self._in_forward:
            self._in_forward = True
            self._tell(Observer.reached, "forward", self.step)

    def module_returned(self, module: torch.nn.Module, outputs: Any) -> None:
        self._tell(Observer.returned, module, outputs)

    def module_reached(self, module: torch.nn.Module) -> None:
        self._tell(Observer.calls_unseen)
        self.module_called(module, (), {})

    def _adopt(self, module: torch.nn.Module) -> None:
        # Placed first: the mode may compile the model for its current device.
        self.adoption.placement.place(module, self._training.optimizers())
        self._execution.adopt(module)
        self._table = None
        self._mode.adopt(module)
        self._tell(Observer.taken_over, module, self.step)
        self._begin_first()
        self._tell(Observer.adopted, module)
        with self._guard("describing a model"):
            replicated: dict[str, Any] = {"replicated": True} if is_replicated(module) else {}
            if self._config.as_is and (parameter := next(module.parameters(), None)) is not None:
                replicated["device"] = parameter.device.type
            self._log.write("adopted", module=type(module).__name__, step=self.step, **replicated)

    def _begin_first(self) -> None:
        """Begin the first step, unless it has begun: no state before this moment is known."""
        if not self._begun:
            self._begun = True
            self._tell(Observer.begins, self.step)

    def backward_started(self, losses: list[torch.Tensor], found: Found = "backward") -> None:
        if not self._config.as_is:
            require_device(losses, self._mode.device, self._training)
        script_losses = self.losses.backward_started(losses, found)
        self._begin_first()
        self._tell(Observer.backward_started, self.step, losses, script_losses)
        self._tell(Observer.reached, "backward", self.step)

    def step_skipped(self, optimizer: Optimizer) -> None:
        with self._guard("noting a skipped step"):
            source = script_line(self._config.script) or ""
            self._facts.note("step", "steps that the gradient scaler skips count as steps", source)
        self.step_ended(optimizer)

    def backward_ended(self) -> None:
        self._tell(Observer.backward_ended, self.step)
        self._tell(Observer.closing, "backward", self.step)
        step = self.step

        def settled() -> None:
            self._tell(Observer.settled, "backward", step)

        self._mode.close("backward", settled)
        self._tell(Observer.reached, "optimizer", self.step)
        self._in_forward = False

    def optimizer_made(self, optimizer: Optimizer) -> None:
        if self._training.add_optimizer(optimizer):
            self._table = None
            self.adoption.placement.optimizer_made(optimizer)
        self._adopting = self.losses.optimized = True

    def step_started(self, optimizer: Optimizer) -> None:
        if self._training.add_optimizer(optimizer):  # an optimizer that was created before the recording
            self._table, self.losses.optimized = None, True
        if self._table is None:
            self.losses.optimizer_steps()
        self._tell(Observer.optimizer_steps, self.step)

    def step_ended(self, optimizer: Optimizer) -> None:
        self.optimizer_made(optimizer)  # a copied optimizer was never reported as created
        self._ended_by = self._ended_by or f"when {type(optimizer).__name__}.step() returns"
        optimizers = self._training.optimizers()
        if len(optimizers) > 1:
            place = next((number for number, candidate in enumerate(optimizers) if candidate is optimizer), None)
            if place is not None:
                self._stepped[self.step] = place
        self._seems_ended()

    def _seems_ended(self) -> None:
        """End the step, unless the script itself marks the ends of its steps."""
        if not self._words.steps_are_own:
            self.end_step()

    def end_step(self) -> None:
        """End the current step."""
        self._adopting = False
        # Hooks on every module call are costly: they are removed if no observer needs calls.
        watched = any(self._tell(Observer.watches_calls, self.step))
        if self.losses.optimized and not (watched or self._words.logged.used or self._config.instruments):
            self._hooks.calls.close()
        elif watched and self._config.overhead is not None:  # they are closed in steps without details
            self._hooks.calls.open()
        number = self.step
        self._tell(Observer.step_ended, number)
        self._tell(Observer.closing, "step", number)
        if number == 0:
            with self._guard("ending a step"):
                self._understood()
        self.losses.take(), self._words.take()  # values that nobody took belong to no later step
        waiting = self._words.after_step.take()
        self.step += 1

        def settled() -> None:
            self._tell(Observer.settled, "step", number)
            self._words.after_step.settle(waiting)

        self._mode.close("step", settled)
        self._tell(Observer.reached, "step", self.step)
        self._in_forward = False
        self._begun = True  # later steps begin at the end of the previous one; step 0 begins with a model or a backward
        self._tell(Observer.begins, self.step)
        self._facts.check()
        self._end.leave_at_limit(self.step)

    def _understood(self) -> None:
        """Report the findings of the first step."""
        # A separate function: as locals of `end_step`, these tensors would live on while the mode executes the step.
        by = self._ended_by or "where the next forward begins: the script creates no optimizer"
        if self._words.steps_are_own:
            by = "where the script marks it (numdrift.step)"
        say_step(self._facts, by, script_line(self._config.script) or "")
        named = self._training.named()
        say_parameters(self._facts, named, self._training.root_classes())
        self.adoption.first_step_ended([entry.tensor for entry in named])
        self._execution.first_step_ended()

    def _tensors(self) -> Sequence[NamedTensor]:
        """The training's tensors: the same list until they change."""
        if self._table is None:
            self._table = self._training.named()
        return self._table

    def _tensors_changed(self) -> None:
        self._table = None
        if not self.losses.optimized:
            self._tell(Observer.tensors_found, self.step)

    def _fields(self, step: int) -> dict[str, Any]:
        # Two optimizers that take turns train two losses: nothing else records which of them a step belongs to.
        fields: dict[str, Any] = {"optimizer": self._stepped.pop(step)} if step in self._stepped else {}
        for observed in self._tell(Observer.fields, step):
            fields |= observed
        return fields

    def _guard(self, doing: str) -> Guard:
        return Guard(self._stop_recording, doing)

    def _observer_failed(self, part: Part, doing: str, error: Exception) -> None:
        text = f"{doing} failed{part.stops}: {type(error).__name__}: {error}"
        if part is not RECORDING:
            self.notice(text)
        elif not self._broken:
            self._broken = True
            self.losses.stop()
            self._log.failed(self.step, text)

    def _stop_recording(self, doing: str, error: Exception) -> None:
        """Stop after a failure of the recorder itself, outside every observer."""
        self._audience.stop(RECORDING, doing, error)

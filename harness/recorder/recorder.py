"""The recorder: what happens in the script's process, step by step, goes into the journal.

It only reads, and only when the mode says that the values are there. A failure of its own is written down as
a notice and ends the recording, never the training; the mode is told of every moment all the same, because it
may act there (the lazy mode executes its graph).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from .. import torch_private
from ..adoption.facts import AdoptionFacts
from ..errors import AdoptionError
from ..modes.protocol import Mode
from . import frames
from .config import RunConfig
from .digest import Digester
from .digest_record import ABSENT
from .experiments import Experiments
from .graphs import GraphRecording
from .guard import Guard
from .hooks import Hooks
from .journal import EventLog, FrameFile, loss_to_json
from .operations import WITHOUT_VALUES, OperationRecorder
from .optimizer_state import bindings
from .origin import script_line
from .setup_facts import SetupFacts, StepSetup
from .tensors import NamedTensor
from .training_tensors import TrainingTensors
from .values import ValueFiles


@dataclass(frozen=True, slots=True)
class Table:
    """The tensors that the frames of a step hold, in this order. `number` names it in the frames."""

    number: int
    tensors: tuple[NamedTensor, ...]


@dataclass(frozen=True, slots=True)
class EndedStep:
    """A step whose values may not be readable yet."""

    number: int
    losses: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor | None, ...]
    table: Table
    setup: StepSetup

    @property
    def state(self) -> Iterator[torch.Tensor]:
        """The tensors of the table, then the gradients that there are."""
        yield from (named.tensor for named in self.table.tensors)
        yield from (gradient for gradient in self.gradients if gradient is not None)


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
        self._hooks = Hooks(self)
        self._training = TrainingTensors()
        self._losses: list[torch.Tensor] = []
        self._table: Table | None = None
        self._tables = 0
        self._digester = Digester()
        self._digests = FrameFile(folder / frames.DIGESTS)
        self._last_digests = b""
        self._values = ValueFiles(folder, config.keep_params, config.value_budget, self.notice)
        self._operations = OperationRecorder(
            folder, self._digester, self._guard("recording an op"), values=config.records("tensors")
        )
        self._with_operations = config.records("ops")
        self._started = time.perf_counter()
        self._broken = self._forgotten = False
        self._nonfinite_from: int | None = None
        self._backward_at: str | None = None
        self._graphs = GraphRecording(config, mode, functools.partial(bindings, self._training), self.notice)
        self._experiments = Experiments(config, mode, self._training, log, self.notice)
        self._setup = SetupFacts(
            config, mode, self._training, self._digester, log, self._guard("recording the setup")
        )
        self._adopting = True

    @property
    def digest_implementation(self) -> str:
        """Which implementation computes the digests, and why it is not the native one."""
        reason = self._digester.reason
        return self._digester.implementation + (f" ({reason})" if reason else "")

    def start(self) -> None:
        self._hooks.install()
        if self._config.records("ops") and self._mode.device in WITHOUT_VALUES:
            self._with_operations = False
            with self._guard("saying what is not recorded"):
                self.notice(
                    f"ops are not recorded in this mode: on {self._mode.device} they have no values when they are "
                    "called; losses, parameters and digests are recorded as always"
                )
        self._graphs.install()
        self._record_operations_of(0)

    def forget(self) -> None:
        """Stop without a trace: this is a fork of the recorded process (a data loader's worker)."""
        self._broken = self._forgotten = True
        self._graphs.forget()
        self._experiments.forget()
        self._hooks.remove()

    def finish(self, status: str, **facts: Any) -> None:
        """Close the journal with the way the script ended."""
        self._hooks.remove()
        if self._forgotten:
            return
        with self._guard("closing the journal"):
            self._operations.leave()
            self._experiments.leave()
            self._graphs.closing("end")
            self._mode.close("end")
            self._graphs.reached("end", self.step)
            self._graphs.close()
            self._write_last_values()
        if status == "complete" and self._broken:
            facts["message"] = "the recording stopped before the script did"
        if status == "complete" and self._nonfinite_from is not None:
            status = "nonfinite"
            facts["message"] = f"the loss is not finite from step {self._nonfinite_from} on"
        with self._guard("closing the journal"):
            self._log.write("end", status=status, steps=self.step, seconds=self._elapsed(), **facts)

    def notice(self, text: str) -> None:
        """Write down something that whoever reads the run should know."""
        self._log.write("notice", step=self.step, text=text)

    def module_called(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if (self._adopting or self.step < SETTLED_STEP) and self._training.add_root(module):
            if self._adopting:
                self._adopt(module)
            else:  # a moving average that is first called to be evaluated: looked at, and left as it is
                self._table = None
        self._setup.called(module, args, kwargs)

    def _adopt(self, module: torch.nn.Module) -> None:
        kind = self._mode.device.partition(":")[0]
        found = {parameter.device.type for parameter in module.parameters()}
        if found != {kind}:
            raise AdoptionError(
                f"{type(module).__name__} is on {' and '.join(sorted(found))}, but this mode runs on {kind}: take "
                'the device in the script from os.environ["DEVICE"] and move the model and the data there'
            )
        self._table = None
        self._mode.adopt(module)
        self._setup.adopted(self.step, module)
        self._experiments.begin(self.step)
        self._setup.begin_first()
        self._graphs.adopted(module)
        with self._guard("describing a model"):
            self._log.write("adopted", module=type(module).__name__, step=self.step)

    def backward_started(self, losses: list[torch.Tensor]) -> None:
        with self._guard("taking the loss"):
            if self._backward_at is None and not self._broken:
                self._backward_at = script_line(self._config.script) or ""
                self._log.write("loss", source=self._backward_at)
            with torch_private.without_dispatch_modes():
                self._losses += [loss.detach() for loss in losses]
        self._experiments.backward_started(self.step, losses)
        self._setup.begin_first()
        self._operations.phase = "backward"
        self._graphs.backward_started(losses)

    def backward_ended(self) -> None:
        self._operations.phase = "optimizer"
        self._experiments.backward_ended()
        self._graphs.closing("backward")
        self._mode.close("backward", self._setup.after_backward(self.step))
        self._graphs.reached("backward", self.step)

    def optimizer_made(self, optimizer: Optimizer) -> None:
        if self._training.add_optimizer(optimizer):
            self._table = None
        self._adopting = True

    def step_started(self, optimizer: Optimizer) -> None:
        self._setup.optimizer_steps(self.step)

    def step_ended(self, optimizer: Optimizer) -> None:
        self.optimizer_made(optimizer)  # one that was copied was never made
        self._adopting = False
        if not self._setup.watches_calls(self.step):
            self._hooks.calls.close()
        number, ended = self.step, None
        with self._guard("ending a step"):
            self._operations.leave()  # before a tape is replayed
        self._experiments.step_ended(self.step)
        with self._guard("ending a step"):
            self._graphs.closing("step")
            if not self._broken:
                ended = self._ended_step()
        self._losses = []
        self.step += 1
        self._mode.close("step", functools.partial(self._settled, number, ended))
        self._graphs.reached("step", self.step)
        self._experiments.begin(self.step)
        self._record_operations_of(self.step)
        self._setup.begin()
        if self._config.until is not None and number > self._config.until:
            raise SystemExit(0)

    def _settled(self, step: int, ended: EndedStep | None) -> None:
        if ended is not None:
            self._record(ended)
        self._experiments.settled(step)

    def _ended_step(self) -> EndedStep:
        table = self._table or self._new_table()
        gradients = tuple(named.tensor.grad for named in table.tensors if named.kind == "parameter")
        return EndedStep(self.step, tuple(self._losses), gradients, table, self._setup.end())

    def _new_table(self) -> Table:
        number, self._tables = self._tables, self._tables + 1
        self._table = Table(number, tuple(self._training.named()))
        self._log.write("tensors", table=number, tensors=[named.describe() for named in self._table.tensors])
        return self._table

    def _record(self, ended: EndedStep) -> None:
        if self._broken:
            return
        with self._guard("recording a step"):
            with_state = self._config.records("params") and ended.number in self._config.steps
            # In one piece: the lazy mode may have to execute a graph for it.
            read = self._mode.read([*ended.losses, *(ended.state if with_state else ())])
            losses = [_scalar(value) for value in read[: len(ended.losses)]]
            if self._nonfinite_from is None and any(loss - loss != 0.0 for loss in losses):
                self._nonfinite_from = ended.number
            if with_state:
                self._record_state(ended, read[len(ended.losses) :])
            self._log.write(
                "step",
                step=ended.number,
                losses=[loss_to_json(loss) for loss in losses],
                seconds=self._elapsed(),
                **self._setup.describe(ended.setup),
            )

    def _record_state(self, ended: EndedStep, read: list[torch.Tensor]) -> None:
        number, step = ended.table.number, ended.number
        count = len(ended.table.tensors)
        digests = self._digester.digest(read)
        size = len(ABSENT)
        values, gradients = digests[: count * size], iter(_chunks(digests[count * size :], size))
        self._last_digests = values
        payload = [values, *(ABSENT if one is None else next(gradients) for one in ended.gradients)]
        self._digests.frame(number, step, payload, sum(len(part) for part in payload))
        self._values.keep(number, step, read[:count])

    def _write_last_values(self) -> None:
        """Keep the last step's values, provided that nothing changed them after it."""
        if not self._config.records("params") or self._table is None or not self._last_digests:
            return
        read = self._mode.read([named.tensor for named in self._table.tensors])
        if self._digester.digest(read) == self._last_digests:
            self._values.write_last(self._table.number, self.step - 1, read)

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
            self._setup.stop()
            self._log.failed(
                self.step, f"{doing} failed, recording stops here: {type(error).__name__}: {error}"
            )

    def _elapsed(self) -> float:
        return round(time.perf_counter() - self._started, 6)


def _scalar(loss: torch.Tensor) -> float:
    """The loss as a Python float; what is no scalar is summed up, as `backward` does with its gradient."""
    return float(loss.item() if loss.numel() == 1 else loss.double().sum().item())


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))

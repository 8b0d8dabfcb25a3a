"""The one protocol of all observers in the script's process: what is reported of a training, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..records.run_config import RunConfig
from .mode_protocol import Mode, Moment

if TYPE_CHECKING:
    import torch

    from ..observers.digest import Digester
    from ..observers.ended_step import Said
    from ..script.named_tensors import NamedTensor, TrainingTensors
    from ..tape.journal_writing import EventLog

Progress = Literal["forward", "backward", "optimizer", "step", "end"]
"""A root module is about to be called for the first time in a step; a backward begins; it has ended; the next
step begins; the script has ended."""


class Observer:
    """An observer of a training from the script's first line to its last. This one does nothing: a subclass
    overrides the moments that it needs.

    The moments of a step come in this order. Each is reported to every observer before the next one:

        taken_over, begins, adopted      a root module is about to be called for the first time
        called, given, reached forward   an outermost module is called
        backward_started, reached backward, backward_ended, closing backward, settled, reached optimizer
        optimizer_steps                  an optimizer is about to step
        step_ended, closing step, settled, reached step, begins

    Any method may raise: the training continues, and the observer leaves with a notice. The notice says `doing`, for
    an observer that does several things one after the other; "" means the observer's name.
    """

    doing = ""  # set as it goes on, read when it has failed

    def install(self) -> None:
        """Begin: the script is about to be executed. Step 0 is under way from here on."""

    def taken_over(self, module: torch.nn.Module, step: int) -> None:
        """The mode has taken over a root module. The computation of step 0 has not begun before the first one."""

    def begins(self, step: int) -> None:
        """The computation of a step begins. Step 0 begins when the first root module is about to be called, or with the
        first backward; every other step begins when the step before it has ended. It starts from the state of now."""

    def adopted(self, module: torch.nn.Module) -> None:
        """A root module is about to be called for the first time; its mode has taken it over already."""

    def called(self, module: torch.nn.Module) -> None:
        """An outermost module is about to be called, a root module or another."""

    def given(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """An outermost module is about to be called with these arguments."""

    def given_instead(self, tensor: torch.Tensor) -> None:
        """An argument of that call now holds values that are not the script's own and that no op has written."""

    def calls_unseen(self) -> None:
        """Root modules are called where nothing sees their arguments."""

    def watches_calls(self, step: int) -> bool:
        """Say whether to report module calls after this step, when the models are known."""
        return False

    def tensors_found(self, step: int) -> None:
        """Parameters that belong to no module were found, before their first update."""

    def backward_started(self, step: int, started: Sequence[torch.Tensor], losses: Sequence[torch.Tensor]) -> None:
        """A backward from the tensors `started` is about to run; they represent the script's own `losses`."""

    def backward_ended(self, step: int) -> None:
        """The backward has run, and nothing has acted on its gradients."""

    def optimizer_steps(self, step: int) -> None:
        """An optimizer is about to step."""

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        """The step that has begun starts from these values, under the names that `saw` has for them at its end."""

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        """A value of the step is final; the script may change the tensor afterwards.

        Names are `loss 0`, `loss 1` (one for each tensor that a backward starts from, numbered through the
        step), `gradient 0 net.weight` (after the step's backward number 0), and after the step `parameter
        net.weight`, `buffer norm.running_mean` and `state net.weight.exp_avg`.
        """

    def step_ended(self, step: int) -> None:
        """The step is over; its values may not be readable yet."""

    def script_ended(self, failure: str) -> None:
        """The script has ended, perhaps within a step; `failure` is the error that ended it, "" for none."""

    def closing(self, moment: Moment, step: int) -> None:
        """The mode is about to close a piece of work, and may execute a graph."""

    def settled(self, moment: Moment, step: int) -> None:
        """The values of the closed piece can now be read without executing anything else."""

    def fields(self, step: int) -> Mapping[str, Any]:
        """Return further fields for the journal's line of an ended step, once the step's values can be read."""
        return {}

    def reached(self, progress: Progress, step: int) -> None:
        """The training has reached this point of step `step`; for `step` and `end` that is the step about to begin."""

    def phase(self, name: str, begins: bool) -> None:
        """The script enters, or leaves, a phase that it names (`numdrift.phase`)."""

    def close(self) -> None:
        """Take every hook out and write what is left to write. Called once, also after a failure."""

    def forget(self) -> None:
        """Write nothing any more: this is a fork of the process, or what the observer is a part of has failed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of an observer: `folder` is that of the run (its journal's parent), `options` are its own.

    `named` returns the parameters and buffers that are known by then. `write` puts an event into the journal, and
    `notice` a text that every reader of the run should know.
    """

    config: RunConfig
    options: Mapping[str, Any]  # of a bring-up tool, from `config.instruments`
    mode: Mode
    folder: Path
    named: Callable[[], list[NamedTensor]]
    write: Callable[..., None]
    notice: Callable[[str], None]
    bound: Callable[[], Mapping[str, torch.Tensor]] = dict
    """The script's tensors by what they are to it: `parameter net.0.weight`, `gradient net.0.weight`,
    `state net.0.weight.exp_avg`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSurroundings(Surroundings):
    """Further surroundings of the recording's own observers.

    `table` returns the step's tensors: the same list as long as the tensors are the same. `losses`, `gradients` and
    `said` return what the script's step had; `gradients` has those that are in no `.grad`, by their parameters' names.
    `fields` returns what the other observers say of a step. `nonfinite` is called with a step whose loss is not finite.
    `seconds` is the time since the training began. `phases` are those that the script has named and is in, the
    innermost last. `guard` keeps a failure out of the training where something other than the audience calls an
    observer.
    """

    log: EventLog
    training: TrainingTensors
    digester: Digester
    table: Callable[[], Sequence[NamedTensor]]
    losses: Callable[[], tuple[torch.Tensor, ...]]
    gradients: Callable[[], Mapping[str, torch.Tensor]]
    said: Callable[[], Sequence[Said]]
    nonfinite: Callable[[int], None]
    fields: Callable[[int], Mapping[str, Any]]
    seconds: Callable[[], float]
    phases: Sequence[str]
    guard: Callable[[Observer], AbstractContextManager[None]]  # where patches or hooks of its own call it

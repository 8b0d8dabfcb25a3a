"""The protocol of all observers in the script's process: the moments of a training run that are reported to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..records.run.run_config import RunConfig
from .mode_protocol import Mode, Moment

if TYPE_CHECKING:
    import torch

    from ..observers.values.digest import Digester
    from ..observers.values.ended_step import LoggedStep
    from ..observers.values.recording_share import RecordingShare
    from ..script.named_tensors import NamedTensor, TrainingTensors
    from ..tape.files.journal_writing import EventLog
    from ..tape.serving.step_kernels import StepKernels

Progress = Literal["forward", "backward", "optimizer", "step", "end"]
"""The points of a training run, in this order: a root module is about to be called for the first time in a step; a
backward begins; the backward has ended; the next step begins; the script has ended."""


class Observer:
    """An observer of a training run, from the script's first line to its last.

    This class does nothing; a subclass overrides the moments that it needs. The moments of a step come in this order,
    and each is reported to every observer before the next one:

        taken_over, begins, adopted            a root module is about to be called for the first time
        called, called_with, reached forward   an outermost module is called
        returned                               it has returned
        backward_started, reached backward, backward_ended, closing backward, settled, reached optimizer
        optimizer_steps                        an optimizer is about to step
        step_ended, closing step, settled, reached step, begins

    Any method may raise: the training continues, and the observer is removed with a notice. The notice names the
    observer's current activity, `doing`, or the observer itself if `doing` is "".
    """

    doing = ""

    def install(self) -> None:
        """Begin: the script is about to be executed. Step 0 starts here."""

    def taken_over(self, module: torch.nn.Module, step: int) -> None:
        """The mode has taken over a root module. For the first one, the computation of step 0 has not begun."""

    def begins(self, step: int) -> None:
        """The computation of a step begins, from the current state.

        Step 0 begins when the first root module is about to be called, or with the first backward. Every other step
        begins when the previous one has ended."""

    def adopted(self, module: torch.nn.Module) -> None:
        """A root module is about to be called for the first time; the mode has already taken it over."""

    def called(self, module: torch.nn.Module) -> None:
        """An outermost module is about to be called, whether or not it is a root module."""

    def called_with(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """An outermost module is about to be called with these arguments."""

    def returned(self, module: torch.nn.Module, outputs: Any) -> None:
        """An outermost module has returned these outputs."""

    def calls_unseen(self) -> None:
        """Root modules are called without their arguments being observed."""

    def watches_calls(self, step: int) -> bool:
        """Return whether this observer needs module calls after this step. The hooks are removed once no observer needs
        them."""
        return False

    def tensors_found(self, step: int) -> None:
        """Parameters that belong to no module have been found. They have not been updated yet."""

    def backward_started(self, step: int, started: Sequence[torch.Tensor], losses: Sequence[torch.Tensor]) -> None:
        """A backward from the tensors `started` is about to run; they represent the script's own `losses`."""

    def backward_ended(self, step: int) -> None:
        """The backward has run, and nothing has used its gradients yet."""

    def optimizer_steps(self, step: int) -> None:
        """An optimizer is about to step."""

    def step_ended(self, step: int) -> None:
        """The step has ended; its values may not be readable yet."""

    def script_ended(self, failure: str) -> None:
        """The script has ended, perhaps in the middle of a step; `failure` is the error that ended it, "" for none."""

    def closing(self, moment: Moment, step: int) -> None:
        """The mode is about to close a piece of work, and may execute a graph."""

    def settled(self, moment: Moment, step: int) -> None:
        """The values of the closed piece of work can now be read without executing anything else."""

    def fields(self, step: int) -> Mapping[str, Any]:
        """Return further fields for the journal's line of a step. Called once the step's values can be read."""
        return {}

    def reached(self, progress: Progress, step: int) -> None:
        """The training has reached this point of a step; at the points `step` and `end`, `step` is the next step."""

    def phase(self, name: str, begins: bool) -> None:
        """The script enters or leaves a phase that it names (`numdrift.phase`)."""

    def close(self) -> None:
        """Remove every hook and write all that is pending. Called exactly once, even after a failure."""

    def forget(self) -> None:
        """Stop writing: this process is a fork, or the observer's part has failed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects that an observer can use.

    options: the options of the bring-up tool that the observer belongs to.
    folder: the folder of the run, which contains its journal.
    named: returns the parameters and buffers that are known at the time.
    write: writes an event to the journal.
    notice: writes a text to the journal that every reader of the run should see.
    """

    config: RunConfig
    options: Mapping[str, Any]  # from `config.instruments`
    mode: Mode
    folder: Path
    named: Callable[[], list[NamedTensor]]
    write: Callable[..., None]
    notice: Callable[[str], None]
    bound: Callable[[], Mapping[str, torch.Tensor]] = dict
    """Returns the script's tensors by their role and name: `parameter net.0.weight`, `gradient net.0.weight`,
    `state net.0.weight.exp_avg`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSurroundings(Surroundings):
    """The objects that only the built-in observers can use.

    table: returns the step's tensors; as long as the tensors stay the same, so does the list object.
    losses: returns the losses of the step.
    gradients: returns the step's gradients that are in no `.grad`, by their parameters' names.
    logged_values: returns the values that the script has logged in the step.
    nonfinite: called with a step whose loss is not finite.
    fields: returns the other observers' fields for a step's line of the journal.
    seconds: returns the time since the training began, in seconds.
    phases: the named phases that the script is in, the innermost last.
    kernels: by step, the kernels of those recorded steps that were not executed op by op. The worker uses them to
        answer requests.
    share: chooses the steps whose details are recorded, so that recording takes no more than its share of the time.
    guard: returns a context that keeps a failure out of the training. It is for code outside the audience that calls an
        observer.
    """

    log: EventLog
    training: TrainingTensors
    digester: Digester
    table: Callable[[], Sequence[NamedTensor]]
    losses: Callable[[], tuple[torch.Tensor, ...]]
    gradients: Callable[[], Mapping[str, torch.Tensor]]
    logged_values: Callable[[], Sequence[LoggedStep]]
    nonfinite: Callable[[int], None]
    fields: Callable[[int], Mapping[str, Any]]
    seconds: Callable[[], float]
    phases: Sequence[str]
    share: RecordingShare
    kernels: MutableMapping[int, StepKernels]
    guard: Callable[[Observer], AbstractContextManager[None]]  # for patches or hooks that call the observer

"""The interfaces of a mode and of a capture of its graphs to the recorder. Each mode has a small class for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from ..records.capabilities import Capabilities

if TYPE_CHECKING:
    import torch

    from numdrift.kernels.swaps.engine import Swaps

    from ..records.mode_spec import ModeSpec
    from ..tape.step_recorder import StepRecorder
    from .backend_adapter import Adapter

Moment = Literal["backward", "step", "end"]
"""The moments when a mode may act: after a backward, after the outermost optimizer step, and at the script's end."""


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """The facts about the script that are known before its first line runs: the names that its code object mentions."""

    names: frozenset[str]

    def imports(self, package: str) -> bool:
        """Say whether the script imports a package, or a module of it."""
        return any(name.partition(".")[0] == package for name in self.names)


class Mode(Protocol):
    """One way to execute a reproducer, inside its process: all that the harness may ask of it.

    A mode derives from this class, or from a mode that does. What has a body here is optional.

    capabilities: the facts by which the mode differs from others.
    device: the torch device that the script is to use; the environment variable DEVICE carries it. It is known before
        `prepare`, as the script reads DEVICE at its first line.
    backend: the name of the compiler's backend; None where nothing is compiled.
    device_settings: by name what the mode's device is set to that changes numbers, each as two functions: one reads it
        as a plain value, one sets it.
    """

    capabilities: Capabilities = Capabilities()
    device: str
    backend: str | None = None
    device_settings: ClassVar[Mapping[str, tuple[Callable[[], Any], Callable[[Any], None]]]] = {}

    def __init__(self, spec: ModeSpec) -> None: ...

    def require_here(self) -> None:
        """Raise NotAvailable or UsageError if this machine lacks the mode's device, package or backend.

        The tools ask before anything is started.
        """
        return

    @abstractmethod
    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        """Set the process up and install the swaps, before the script's first line.

        Raises NotAvailable with the remedy, and UsageError for a swap that the mode cannot have.
        """

    @abstractmethod
    def adopt(self, module: torch.nn.Module) -> None:
        """Take over a root module, before its first call."""

    def adopt_function(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """Return what the mode executes in place of a function that computes loss and gradients in one.

        None where it executes the function itself.
        """
        return None

    @abstractmethod
    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        """Close a piece of work, and call `settled` as soon as its values can be read without
        executing anything that the script would not have executed by then."""

    @abstractmethod
    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values as CPU tensors; a tensor that lives on the CPU is returned itself, not copied.

        Of a tensor that is sharded over ranks this is the part that is here."""

    def has_value(self, tensor: torch.Tensor) -> bool:
        """Say whether a tensor of the mode's device has its value already, so that reading it executes nothing."""
        return self.capabilities.has_values

    def execute(self) -> None:
        """Execute the ops that are pending, where the mode holds some back."""
        return

    def mark_step(self) -> None:
        """Cut the graph here, where the script asks for it and the mode cuts graphs."""
        return

    def step_recorder(self, step: int, script: str) -> StepRecorder | None:
        """Return what records a step as the mode executes it; None where ops have their values when they are called."""
        return None

    def snapshots(self, camera: Any, circumstances: Any, bound: Callable[[], Mapping[str, torch.Tensor]]) -> Any:
        """Return the `SnapshotObserver` that hands the mode's executions to a camera; None for those of eager mode.

        `bound` returns the tensors of the training by name. Raises NotAvailable.
        """
        return None

    @abstractmethod
    def adapter(self) -> Adapter:
        """Return what the bring-up tools ask the mode's backend."""

    def leave(self) -> None:
        """Restore what the mode has set in a process that goes on without it."""
        return


@runtime_checkable
class CuttingMode(Mode, Protocol):
    """A mode that holds ops back and executes them where their graph is cut; the policy `off` cuts it nowhere."""

    policy: str

    def observe_cuts(
        self, about_to_cut: Callable[[], None], cut: Callable[[], None] = lambda: None
    ) -> Callable[[], None]:
        """Have `about_to_cut` called before each cut, including the script's own, and `cut` after it.

        Return the undo.
        """
        ...


class Capture(Protocol):
    """A capture of graphs in the script's process, which changes no bit of what the script computes.

    Its methods may raise anything: the caller ends the capture with a notice, and the training continues.
    """

    def install(self) -> None:
        """Begin, before the script's first line and after the mode has prepared the process."""

    def adopted(self, module: torch.nn.Module) -> None:
        """A root module is about to be called for the first time; its mode has taken it over already."""

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        """A backward from these tensors is about to run."""

    def closing(self, moment: Moment) -> None:
        """The mode is about to close a piece of work: `backward`, `step` or `end`."""

    def reached(self, moment: Moment) -> None:
        """The mode has just closed a piece of work: `backward`, `step` (the next step begins) or `end`."""

    def remove(self) -> None:
        """Take every hook out; nothing is written afterwards."""

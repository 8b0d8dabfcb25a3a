"""The interface through which the recorder uses a mode."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from ..records.modes.capabilities import Capabilities

if TYPE_CHECKING:
    import torch

    from numdrift.kernels.swaps.engine import Swaps

    from ..records.modes.mode_spec import ModeSpec
    from ..tape.recording.step_recorder import RecordingRequest, StepRecorders
    from .backend_adapter import Adapter
    from .graph_capture import Capture, CaptureRequest

Moment = Literal["backward", "step", "end"]
"""The moments at which a mode may act: after a backward, after the outermost optimizer step, at the script's end."""


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """The facts about the script that are known before it runs.

    names: the names in the script's code object.
    """

    names: frozenset[str]

    def imports(self, package: str) -> bool:
        """Return whether the script imports a package or a module of it."""
        return any(name.partition(".")[0] == package for name in self.names)


class Mode(Protocol):
    """A way to execute a script in the training process. This class lists all that the harness needs from a mode.

    A mode derives from this class or from another mode. Members that have a body in this class are optional.

    capabilities: the facts by which the mode differs from others.
    device: the torch device for the script, passed in the environment variable DEVICE. It is known before `prepare`,
        because the script may read DEVICE in its first line.
    backend: the name of the compiler's backend; None if the mode compiles nothing.
    device_settings: the settings of the mode's device that change numbers, by name. Each is a pair of functions: one
        returns the setting as a plain value, the other sets it.
    """

    capabilities: Capabilities = Capabilities()
    device: str
    backend: str | None = None
    device_settings: ClassVar[Mapping[str, tuple[Callable[[], Any], Callable[[Any], None]]]] = {}

    def __init__(self, spec: ModeSpec) -> None: ...

    def require_here(self) -> None:
        """Raise NotAvailable or UsageError if this machine lacks the mode's device, package or backend.

        The tools call this method before they start anything.
        """
        return

    @abstractmethod
    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        """Set up the process and install the swaps, before the script's first line.

        Raises NotAvailable with the remedy, and UsageError for a swap that the mode does not support.
        """

    @abstractmethod
    def adopt(self, module: torch.nn.Module) -> None:
        """Take over a root module, before its first call."""

    def adopt_function(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """Return the mode's replacement for a function that computes loss and gradients together.

        Return None if the mode executes the function unchanged.
        """
        return None

    @abstractmethod
    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        """Close a piece of work, and call `settled` as soon as its values can be read.

        `settled` may read them without executing anything that the script would not have executed by then.
        """

    @abstractmethod
    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values as CPU tensors; a tensor that is already on the CPU is returned as it is.

        For a tensor that is sharded over ranks, return this rank's part.
        """

    def in_place(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values where they lie, as the training's own memory, on the mode's device.

        They may be the script's own tensors: read their memory, and let autograd see no op on them. They are the values
        of this moment only until the training continues. A mode whose tensors are not in a device's
        memory returns CPU tensors, as `read` does.
        """
        return self.read(tensors)

    def has_value(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor of the mode's device has its value already, so that reading it executes nothing."""
        return self.capabilities.has_values

    def execute(self) -> None:
        """Execute the pending ops, in a mode that defers them."""
        return

    def mark_step(self) -> None:
        """Cut the graph at the script's request, in a mode that cuts graphs."""
        return

    def step_recorders(self, request: RecordingRequest) -> StepRecorders | None:
        """Return the recorders of the mode's steps; None if each op can be recorded when it is called."""
        return None

    def capture(self, request: CaptureRequest) -> Capture | None:
        """Return the capture of the mode's graphs; None if they cannot be captured."""
        return None

    def snapshots(self, camera: Any, circumstances: Any, bound: Callable[[], Mapping[str, torch.Tensor]]) -> Any:
        """Return the `SnapshotObserver` that passes the mode's executions to a camera; None for an eager mode.

        `bound` returns the tensors of the training by name. Raises NotAvailable.
        """
        return None

    @abstractmethod
    def adapter(self) -> Adapter:
        """Return the interface through which the bring-up tools use the mode's backend (see `backend_adapter`)."""

    def leave(self) -> None:
        """Undo the mode's settings in a process that continues without the mode."""
        return


@runtime_checkable
class CuttingMode(Mode, Protocol):
    """A mode that defers ops and executes them where their graph is cut; under the policy `off`, no graph is cut."""

    policy: str

    def observe_cuts(
        self, about_to_cut: Callable[[], None], cut: Callable[[], None] = lambda: None
    ) -> Callable[[], None]:
        """Call `about_to_cut` before each cut and `cut` after it, including the cuts that the script requests.

        Return a function that ends these calls.
        """
        ...

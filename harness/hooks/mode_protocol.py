"""What a mode, and what captures its graphs, is to the recorder: one interface each, a small class a mode behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch

    from numdrift.kernels.swaps.engine import Swaps

    from ..records.mode_spec import ModeSpec
    from .backend_adapter import Adapter

Moment = Literal["backward", "step", "end"]
"""When a mode may act: after a backward, after the outermost optimizer step, and when the script has ended."""


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """What is known of the script before its first line runs: the names that its code object mentions."""

    names: frozenset[str]

    def imports(self, package: str) -> bool:
        """Whether the script imports a package, or a module of it."""
        return any(name.partition(".")[0] == package for name in self.names)


class Mode(Protocol):
    """One way to execute a reproducer, inside its process.

    `device` is the torch device that the script is to use; the environment variable DEVICE carries it.

    A mode may have a method `adopt_function(function)`, which gives what it executes in place of a function
    that computes loss and gradients in one, and a method `require_here()`, which raises NotAvailable or UsageError if
    this machine lacks the mode's device, package or backend. The tools ask it before anything is started. It may have
    `device_settings`: by name what its device is set to that changes numbers, each as two functions, one that reads it
    as a plain value and one that sets it.
    """

    device: str  # known before `prepare`: the script reads DEVICE at its first line

    def __init__(self, spec: ModeSpec) -> None: ...

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        """Set the process up and install the swaps, before the script's first line.

        Raises NotAvailable with the remedy, and UsageError for a swap that the mode cannot have.
        """

    def adopt(self, module: torch.nn.Module) -> None:
        """Take over a root module, before its first call."""

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        """Close a piece of work, and call `settled` as soon as its values can be read without
        executing anything that the script would not have executed by then."""

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Give the values as CPU tensors; a tensor that lives on the CPU is given itself, not copied.

        Of a tensor that is sharded over ranks this is the part that is here."""

    def adapter(self) -> Adapter:
        """What the bring-up tools ask the mode's backend."""


@runtime_checkable
class CuttingMode(Mode, Protocol):
    """A mode that holds ops back and executes them where their graph is cut; with the policy `off` that is nowhere."""

    policy: str

    def observe_cuts(self, about_to_cut: Callable[[], None], cut: Callable[[], None] = lambda: None) -> None:
        """Have `about_to_cut` called before each cut, the script's own included, and `cut` after it."""


def compiles(mode: Mode) -> bool:
    """Whether a mode has what the script computes compiled: it says then what becomes of the script's own
    settings of torch.compile (see `CompileMode.settings`), as a plug-in does that is made of `CompileMode`.
    """
    # Asked by what it has: a plug-in's mode need not be of our class, which would have to be imported for it.
    return hasattr(mode, "settings")


class Capture(Protocol):
    """Captures graphs in the script's process, and changes no bit of what it computes.

    Its methods may raise anything: whoever calls them ends the capture with a notice and lets the training go on.
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

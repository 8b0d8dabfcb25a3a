"""What captures the graphs of a mode: one interface, a file a mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from .mode_protocol import Moment


class Capture(Protocol):
    """Captures graphs in the script's process, and changes no bit of what it computes.

    Its methods may raise anything: whoever calls them ends the capture with a notice and lets the training go
    on.
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

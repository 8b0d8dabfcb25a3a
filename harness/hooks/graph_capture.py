"""The capture of a mode's graphs, and the request for it."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..records.tools.graph_record import GraphFolder

if TYPE_CHECKING:
    import torch

    from .mode_protocol import Moment

NamedTensors = Callable[[], Mapping[str, "torch.Tensor"]]
"""Returns the script's tensors by name, such as `parameter net.0.weight` and `gradient net.0.weight`."""


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """The request for a capture.

    folder: where the graphs are written.
    script: the path of the script.
    steps: the steps to capture.
    named_tensors: returns the script's tensors by name.
    failed: receives a failure of the capture.
    """

    folder: GraphFolder
    script: str
    steps: Container[int]
    named_tensors: NamedTensors
    failed: Callable[[Exception], None]


class Capture:
    """A capture of graphs in the script's process, which changes no bit of the script's results.

    This class does nothing; a subclass overrides the moments that it needs. Its methods may raise anything: the caller
    ends the capture with a notice, and the training continues.
    """

    def install(self) -> None:
        """Begin the capture. Called after the mode has prepared the process and before the script's first line."""

    def adopted(self, module: torch.nn.Module) -> None:
        """A root module is about to be called for the first time; the mode has already taken it over."""

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        """A backward from these tensors is about to run."""

    def about_to_cut(self) -> None:
        """A mode that cuts graphs is about to cut and execute one; the script may have requested this cut."""

    def closing(self, moment: Moment) -> None:
        """The mode is about to close a piece of work: `backward`, `step` or `end`."""

    def reached(self, moment: Moment) -> None:
        """The mode has just closed a piece of work: `backward`, `step` (the next step begins) or `end`."""

    def remove(self) -> None:
        """Remove every hook; nothing is written afterwards."""

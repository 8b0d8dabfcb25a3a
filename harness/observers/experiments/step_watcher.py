"""The protocol of the observers that also receive a step's values: the recorders of its tape and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...hooks.observer import Observer

if TYPE_CHECKING:
    import torch


class StepWatcher(Observer):
    """An observer of chosen steps. `Experiments` passes on the moments of these steps, and the values."""

    def starts_from(self, values: Mapping[str, torch.Tensor]) -> None:
        """The current step starts from these values, which have the names that `saw` reports at the step's end."""

    def argument_overwritten(self, tensor: torch.Tensor) -> None:
        """An argument of the call in `called_with` now holds values that neither the script nor an op has written."""

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        """A value of the step is final; the script may change the tensor afterwards.

        Names during the step are `loss 0`, `loss 1` (one for each tensor that a backward starts from, numbered
        consecutively within the step) and `gradient 0 net.weight` (after the step's backward number 0). Names after the
        step are `parameter net.weight`, `buffer norm.running_mean` and `state net.weight.exp_avg`.
        """

"""What is looked at in a step: the values that two executions of it are compared by."""

from __future__ import annotations

from typing import Protocol

import torch


class StepWatcher(Protocol):
    """Is shown a step's values at the moment at which each is final, in the order of execution.

    Names are `loss 0`, `loss 1` (one for each tensor that a backward starts from, numbered through the step),
    `gradient 0 net.weight` (after the step's backward number 0), and after the step `parameter net.weight`,
    `buffer norm.running_mean` and `state net.weight.exp_avg`.

    Whoever leads the watchers shows each only the steps that it is for. A watcher may have a method `abandon()`,
    which takes it out of the training for good: within a step when a script ends there, or at its end.
    """

    def begin(self, step: int) -> None:
        """Step `step` begins; its state is what it will start from."""

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        """This value is final. The tensor may be changed by the script afterwards."""

    def end(self, step: int) -> None:
        """The step has ended, everything of it has been shown."""

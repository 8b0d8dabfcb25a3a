"""The one place where a script's own words (`numdrift.log`, `numdrift.step`) meet the recording of its
process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import UsageError

if TYPE_CHECKING:
    import torch


class Listener(Protocol):
    """What a recording does when the script speaks to it. Nothing of it raises into the script."""

    @property
    def device(self) -> str:
        """The torch device of the mode."""

    def log(self, values: Mapping[str, Any]) -> None:
        """Values of the step, tensors or numbers, by name; `loss` is the step's loss."""

    def own_steps(self) -> None:
        """From here on the script says where its steps end."""

    def end_step(self) -> None:
        """A step of the script's own ends here."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Ops within belong to this phase."""

    def mark_step(self) -> None:
        """A lazy graph may be cut here."""

    def show(self, values: Sequence[Any], sep: str, end: str) -> None:
        """Print these values, tensors among them, once the step has been executed."""

    def show_copies(self, values: Sequence[torch.Tensor], text: str) -> None:
        """Print a text with these values in its holes once the step has been executed."""

    def run_after_step(self, closure: Callable[..., Any], values: Sequence[Any]) -> None:
        """Call the closure with these values once the step has been executed."""


class Connection:
    """Holds the recording of this process while there is one. A fork of the process is not recorded."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self._named = ""
        self._follows_forks = False

    def open(self, listener: Listener, named: str) -> None:
        """Connect a recording; `named` is what it is called in messages. Raises UsageError when there is one."""
        if self.listener is not None:
            raise UsageError(f"{self._named} is being recorded in this process already: end that recording first")
        self.listener, self._named = listener, named
        if not self._follows_forks:
            self._follows_forks = True
            os.register_at_fork(after_in_child=self.close)

    def refuse_another(self) -> None:
        """Raises UsageError when a recording is connected."""
        if self.listener is not None:
            raise UsageError(f"{self._named} is being recorded in this process already: end that recording first")

    def close(self) -> None:
        """Take the recording out, if there is one."""
        self.listener = None


connection = Connection()

"""Deferred reads of a script's tensors. They are executed after the step, so they do not end a graph early."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..hooks.mode_protocol import Mode
from ..records.modes.mode_registry import DEFERRED_DEVICES
from ..torch_private.dispatching import current_autograd_node
from ..torch_private.registered_kernels import define_show_op
from ..torch_private.untraced import unwrapped
from .script_api import connection

HOLE = "\0"
"""The placeholder in a text for a tensor's value."""

OWN_REFERENCES = 3
"""The number of references to a tensor that only its deferred read keeps alive.

They are the references from the sequence of tensors, from the loop variable, and from the call that counts references.
"""

KEPT = (
    "numdrift.print (or after_step) reads values that the script drops before the step ends, so a graph gets more "
    "outputs, and differs from the graph of a run without the call; the number of graphs stays the same"
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A deferred read: `does` is called with the values of `tensors`."""

    tensors: Sequence[torch.Tensor]
    does: Callable[[Sequence[torch.Tensor]], None]

    def keeps_alive(self) -> bool:
        """Return whether there is a lazy tensor that only this read keeps alive."""
        for tensor in self.tensors:
            if tensor.device.type in DEFERRED_DEVICES and sys.getrefcount(tensor) <= OWN_REFERENCES:
                return True
        return False


class AfterStep:
    """Keeps tensors of the current step, and reads them when the mode has executed the step.

    The tensors themselves are kept, since a copy would be an additional op of a lazy graph. If a tensor is changed in
    place before it is read, the changed values are read.
    """

    def __init__(self, mode: Mode, notice: Callable[[str], None]) -> None:
        self._mode = mode
        self._notice: Callable[[str], None] | None = notice
        self._waiting: list[Waiting] = []

    def add(self, waiting: Waiting, *, between: bool) -> None:
        """Execute a deferred read after the step.

        The read is executed at once if no step is running (`between`) and the values are available.
        """
        # Asking whether a lazy tensor has a value adds nothing to the graph. torch_xla cannot answer without executing
        # the graph.
        available = (
            tensor.device.type not in DEFERRED_DEVICES or self._mode.has_value(tensor) for tensor in waiting.tensors
        )
        if between and all(available):
            self.settle([waiting])
        else:
            self._waiting.append(waiting)

    def take(self) -> list[Waiting]:
        """End a step. Return the reads that wait for the step's end."""
        waiting, self._waiting = self._waiting, []
        if self._notice is not None and any(entry.keeps_alive() for entry in waiting):
            self._notice(KEPT)
            self._notice = None
        return waiting

    def settle(self, waiting: Sequence[Waiting]) -> None:
        """Read all tensors at once, and execute the reads with their values. Errors in the reads are not caught."""
        if not waiting:
            return
        # All tensors are read together: in lazy mode, this is one sync and executes at most one graph.
        values = iter(self._mode.read([tensor for entry in waiting for tensor in entry.tensors]))
        for entry in waiting:
            entry.does([next(values) for _ in entry.tensors])


def text_of(values: Sequence[Any], tensors: list[torch.Tensor], sep: str, end: str) -> str:
    """Return the text that `print` would print, with HOLE for each tensor, and append the tensors to `tensors`.

    Compilers can trace this function.
    """
    return sep.join([_text(value, tensors, str) for value in values]) + end


def _text(value: Any, tensors: list[torch.Tensor], written: Callable[[Any], str]) -> str:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return HOLE
    if type(value) is list:
        return "[" + ", ".join([_text(item, tensors, repr) for item in value]) + "]"
    if type(value) is tuple:
        comma = "," if len(value) == 1 else ""
        return "(" + ", ".join([_text(item, tensors, repr) for item in value]) + comma + ")"
    if type(value) is dict:
        pairs = [repr(key) + ": " + _text(item, tensors, repr) for key, item in value.items()]
        return "{" + ", ".join(pairs) + "}"
    return written(value)


def write_text(text: str, values: Sequence[torch.Tensor]) -> None:
    """Print a text in which each HOLE is replaced by a value."""
    pieces = text.split(HOLE)
    print(
        pieces[0],
        *(str(value) + piece for value, piece in zip(values, pieces[1:], strict=False)),
        sep="",
        end="",
    )


def plain_tensors(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors without torch.func's wrappers. A tensor that represents a batch is returned unchanged."""
    return [tensor if (plain := unwrapped(tensor)) is None else plain for tensor in tensors]


def heard_in_graph(values: Sequence[torch.Tensor], text: str) -> None:
    """Show the values of a `numdrift.print` in a compiled graph.

    Nothing is shown in the backward, which may compute a value for a second time.
    """
    listener = connection.listener
    if listener is not None and current_autograd_node() is None:
        listener.show_copies([value.detach().clone() for value in values], text)


@functools.cache
def showing_op() -> Any:
    """Return the op that represents `numdrift.print` in a compiled graph."""
    return define_show_op(heard_in_graph)

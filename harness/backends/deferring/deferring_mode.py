"""The base of the modes that defer ops. It cuts the pending graph as a policy requires, and notifies observers.

A policy is `script`, `phase`, `step` or `off`. The policy `auto` becomes `script` or `phase` (see the modes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from ...hooks.backend_adapter import Adapter, load_adapter
from ...hooks.mode_protocol import CuttingMode, Moment
from ...records.modes.mode_spec import ModeSpec
from ...torch_private.patches import Patches, Undo
from ..eager.mode import EagerMode

PLACED = {"phase": ("backward", "step"), "step": ("step",)}
"""The moments at which a policy itself cuts the graph."""


class DeferringMode(CuttingMode):
    """A mode whose values can be read only after a cut has computed them.

    named_adapter: the adapter, as `MODULE:CLASS`.
    """

    named_adapter: ClassVar[str]

    def __init__(self, spec: ModeSpec) -> None:
        self.policy = spec.mark_step or "auto"
        self.eager = EagerMode(spec)
        self._waiting: list[Callable[[], None]] = []
        self._patches = Patches(f"the {self.device} mode")
        self._cutting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def adopt(self, module: torch.nn.Module) -> None:
        self.eager.adopt(module)

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        self.eager.close(moment)
        if settled is not None:
            self._waiting.append(settled)
        if moment in PLACED.get(self.policy, ()):
            self._cut()
        elif moment == "end" or self._has_values(moment):
            self._settle()

    def adapter(self) -> Adapter:
        return load_adapter(self.named_adapter, self.eager.spec)

    def execute(self) -> None:
        """Execute all pending work under any policy, because a state is about to be read or set from outside."""
        self._cut()

    def observe_cuts(self, about_to_cut: Callable[[], None], cut: Callable[[], None] = lambda: None) -> Undo:
        """Call `about_to_cut` before each cut, including the script's own, and `cut` after it.

        Return a function that ends this.
        """
        observer = (about_to_cut, cut)
        self._cutting.append(observer)
        return lambda: self._cutting.remove(observer)

    def mark_step(self, *args: object, **kwargs: object) -> None:
        """Cut the graph where the script calls `numdrift.mark_step()`, if the policy is `script` or `phase`."""
        if self.policy in ("script", "phase"):
            self._cut()

    def leave(self) -> None:
        """Restore the original functions and settings. The backend itself cannot be stopped."""
        self._patches.undo()

    def _has_values(self, moment: Moment) -> bool:
        """Return whether the values of a closed part of the step can be read although nothing was cut."""
        return moment == "step" and self.policy == "off"

    def _cut(self) -> None:
        """Cut and execute the pending graph."""
        raise NotImplementedError

    def _cut_by(self, mark: Callable[[], None]) -> None:
        """Cut the graph by calling `mark`. Notify the observers of cuts, and the functions that wait for a cut."""
        for about_to_cut, _ in self._cutting:
            about_to_cut()
        mark()
        for _, cut in self._cutting:
            cut()
        self._settle()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled()

"""Lazy executions: what a cut of the pending graph executes, for the tensors that the script can see.

Before the cut the core is asked for the graph of these tensors and for what it starts from, after it for
their values. An execution that no cut orders (an op that falls back to the CPU, `.item()`) happens inside of
the core, unseen.
"""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import torch

from ...backends.lazy.mode import LazyMode
from ...hooks.mode_protocol import Moment
from ...hooks.observer import Observer, Progress
from ...tape.replay import generator_state
from ...torch_private.dispatching import without_function_modes
from ...torch_private.lazy import lazy_has_value, pending_data, pending_torchscript
from ...torch_private.lazy_graphs import lazy_counters, lazy_tensor_id
from .camera import Camera, is_finite
from .lazy_tape import Pending
from .segments import BEGINS, Bound
from .snapshot_record import Circumstances, Reason, bytes_of_tensors

SYNCS = ("CachedCompile", "UncachedCompile")
"""What the lazy core counts at each execution of a graph."""

UNSEEN = (
    "the lazy core executed {} graphs beside those at its cuts (ops that fall back to the CPU, values "
    "that are read): no "
    "snapshots are taken of them"
)


class LazyCuts(Observer):
    """Follows the mode's cuts. What fails is told to the camera, and the training goes on."""

    def __init__(self, camera: Camera, around: Circumstances, mode: LazyMode, bound: Bound) -> None:
        self._camera = camera
        self._around = around
        self._mode = mode
        self._bound = bound
        self._phases: dict[str, None] = {}
        self._latest = "setup"
        self._in_step: Counter[str] = Counter()
        self._names: dict[int, str] = {}
        self._pending: Pending | None = None
        self._open = True
        self._cuts = 0
        self._before = _executions()
        mode.observe_cuts(self._about_to_cut, self._cut)
        if mode.policy == "off":
            camera.tell("no snapshots are taken: with mark_step=off nothing is cut")

    def closing(self, moment: Moment, step: int) -> None:
        if self._latest == "optimizer":
            self._phases.setdefault(self._latest)

    def reached(self, progress: Progress, step: int) -> None:
        if progress in BEGINS:
            self._latest = progress
        # after a backward nothing of an optimizer may come before the cut
        if progress in ("forward", "backward"):
            self._phases.setdefault(self._latest)
        if progress == "forward":
            self._try("naming lazy tensors", self._name)
        if progress == "step":
            self._in_step.clear()
        if progress == "end":
            unseen = _executions() - self._before - self._cuts
            if unseen > 0:
                self._camera.tell(UNSEEN.format(unseen))

    def close(self) -> None:
        """What was pending when a script failed was never executed: there is no execution that gave the
        error."""
        self._open = False
        self._pending = None

    def _about_to_cut(self) -> None:
        if self._open:
            self._pending = self._try("looking at a pending graph", self._look)

    def _cut(self) -> None:
        pending, self._pending = self._pending, None
        if not self._open:
            return
        self._cuts += 1
        if pending is not None:
            self._try("taking a snapshot", lambda: self._take(pending))
        self._try("naming lazy tensors", self._name)

    def _look(self) -> Pending | None:
        phase = "+".join(self._phases) or self._latest
        self._phases.clear()
        self._in_step[phase] += 1
        name = self._camera.name_of(self._in_step[phase], phase)
        wish = self._camera.begins(name, phase)
        if wish is None or self._camera.choice.on == "error":
            return None
        roots = self._roots()
        if not roots:
            return None
        data = pending_data(list(roots.values()))
        if not self._camera.has_room(wish, bytes_of_tensors([one for _, one in data])):
            return None
        text = pending_torchscript(list(roots.values()))
        return Pending(wish, roots, text, data, self._values(), generator_state("cpu"))

    def _roots(self) -> dict[str, torch.Tensor]:
        """The pending tensors that the script can see, those without a name by the number of the core."""
        known = {id(tensor): name for name, tensor in self._bound().items()}
        found: dict[str, torch.Tensor] = {}
        unnamed = 0
        listed = [*self._bound().values(), *_lazy_tensors()]
        for tensor in {id(one): one for one in listed if one.device.type == "lazy"}.values():
            if lazy_has_value(tensor):
                continue
            name = known.get(id(tensor))
            if name is None:
                name, unnamed = f"output {unnamed}", unnamed + 1
            found[name] = tensor
        return found

    def _name(self) -> None:
        """Take what the values are called that the script's tensors have now."""
        for name, tensor in self._bound().items():
            if tensor.device.type == "lazy":
                self._names.setdefault(lazy_tensor_id(tensor), name)

    def _values(self) -> dict[str, torch.Tensor]:
        """The values that the script's tensors have without executing anything."""
        found: dict[str, torch.Tensor] = {}
        for name, tensor in self._bound().items():
            if tensor.device.type == "lazy" and lazy_has_value(tensor):
                known = pending_data([tensor])
                found |= {name: known[0][1]} if known else {}
        return found

    def _take(self, pending: Pending) -> None:
        given = dict(zip(pending.roots, self._mode.read(list(pending.roots.values())), strict=True))
        reason: Reason = "chosen"
        if self._camera.choice.on == "nonfinite":
            reason = "nonfinite"
            if all(is_finite(name, value) for name, value in given.items()):
                return
        snapshot = pending.snapshot(self._around, self._names, given, reason)
        self._camera.take(pending.wish, snapshot)

    def _try(self, doing: str, do: Any) -> Any:
        try:
            with torch.no_grad(), without_function_modes():
                return do()
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self._camera.failed(doing, error)
            return None


def _executions() -> int:
    counters = lazy_counters()
    return sum(counters.get(name, 0) for name in SYNCS)


def _lazy_tensors() -> list[torch.Tensor]:
    """The lazy tensors that Python knows of."""
    return [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor) and one.device.type == "lazy"]

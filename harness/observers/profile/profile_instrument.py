"""`profile`: traces the chosen steps of the script, each into its own file."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ...hooks.observer import Observer
from ...records.codec import of_fields, read
from ...records.tools.profile_record import (
    CUT,
    EVENTS,
    FORWARD,
    OWN,
    PHASE,
    PROFILE,
    STEP,
    UNTRAINED,
    WORKING,
    TraceRequest,
)
from ...tape.files.journal_writing import EventLog
from ...torch_private.patches import Patches
from ...torch_private.profiling.device_work import is_accelerator, kind_of_device, lacks_times, memory_of
from ...torch_private.profiling.torch_profiler import OpenRange, around_cuts, compilations, watch_ranges
from .named_ranges import KernelRanges, ModuleRanges
from .trace_ranges import Ranges
from .tracer import Tracer

if TYPE_CHECKING:
    from ...hooks.mode_protocol import Moment
    from ...hooks.observer import Progress, Surroundings

OF_COMPILERS = "_data: "
"""Part of the names of the empty ranges that dynamo and Inductor open to show what they did."""

OF_OPTIMIZERS = "Optimizer."
"""Beginning of the names of the ranges that torch's optimizers open around their steps."""


class ProfileInstrument(Observer):
    """Follows the training from step to step, and opens named ranges in its traces."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._request = read(TraceRequest, surroundings.options)
        self._device = surroundings.mode.device
        self._facts = surroundings.mode.capabilities
        self._folder = surroundings.folder / PROFILE / WORKING
        self._log = EventLog(surroundings.folder / PROFILE / EVENTS)
        self._ranges = Ranges(OpenRange)
        script = surroundings.config.script
        self._tracer = Tracer(self._request.kind, surroundings.mode.device, script, self._yield)
        self._modules = ModuleRanges(self._ranges)
        tracer = self._tracer
        self._kernels = KernelRanges(
            lambda name: OpenRange(name) if tracer.running else None,
            script,
            functools.partial(self._log.write, "kernel"),
        )
        self._patches = Patches("the profile")
        self._blocks: Counter[str] = Counter()
        self._step = 0
        self._trained = False
        self._awaits_forward = True
        self._has_gradients = False
        self._bytes = 0
        self._compiled = 0
        self._began: float | None = None
        self._step_began = 0.0
        self._over = False

    def install(self) -> None:
        self._folder.mkdir(parents=True)
        self._log.write("plan", **of_fields(self._request))
        if is_accelerator(self._device):
            self._log.write("device", kind=kind_of_device(self._device), problem=lacks_times(self._device))
        self._patches.also(watch_ranges(self._range_begins, self._range_ends))
        if not self._facts.has_values:
            self._patches.also(around_cuts(self._device, self._cut))
        if self._facts.compiles:
            # No ranges of modules: their hooks would be traced, and would break or change the graphs.
            self._kernels.install(detailed=self._request.kind == "operator")
        else:
            self._modules.install()
        self._compiled = compilations(self._device, compiles=self._facts.compiles) or 0
        self._ranges.phase(PHASE + "setup")
        self._begin(0)

    def adopted(self, module: torch.nn.Module) -> None:
        self._log.write("modules", modules=self._modules.adopted(module))

    def reached(self, progress: Progress, step: int) -> None:
        if progress == "step":
            self._end(whole=True)
            self._ranges.phase(PHASE + "data")
            self._begin(step)
        elif progress == "end":
            self._end(whole=False)
            self._finish("end")
        elif progress == "forward":
            self._trained = True
            self._forward_begins()
        else:
            if progress == "backward":
                self._trained = self._has_gradients = True
            self._awaits_forward = progress == "optimizer"  # in a backward, checkpointing calls models again
            self._ranges.phase(PHASE + progress)

    def closing(self, moment: Moment, step: int) -> None:
        # Next, the mode executes and the recorder reads. This time belongs to none of the script's own phases.
        self._awaits_forward = False
        self._ranges.phase(PHASE + OWN)

    def called(self, module: torch.nn.Module) -> None:
        """Begin the forward at the first call with gradients: a call without gradients may only evaluate a model."""
        if self._ranges.here and torch.is_grad_enabled():
            self._forward_begins()

    def _forward_begins(self) -> None:
        if not self._awaits_forward:
            return
        # A script may evaluate between the steps: a call without gradients before the first call with gradients does
        # not begin the step's forward.
        if torch.is_grad_enabled():
            self._awaits_forward, self._has_gradients = False, True
            self._ranges.phase(PHASE + FORWARD)
        elif not self._has_gradients:
            self._ranges.phase(PHASE + UNTRAINED)

    def phase(self, name: str, begins: bool) -> None:
        if begins:
            self._block_begins(name)
        else:
            self._ranges.leave(name, "block")

    def close(self) -> None:
        self._end(whole=False)
        self._finish("closed")
        self._modules.remove()
        self._kernels.remove()
        self._patches.undo()
        self._tracer.close()
        self._log.close()

    def forget(self) -> None:
        self._over = True
        self._ranges.forget()
        self._log.close()

    def _begin(self, step: int) -> None:
        self._step, self._trained, self._step_began = step, False, time.perf_counter()
        self._awaits_forward, self._has_gradients = True, False
        self._blocks.clear()
        if self._over or step not in self._request.steps:
            return
        if not self._tracer.start():
            self._finish("profiler")
            return
        self._began = self._began or time.perf_counter()
        self._ranges.resume(f"{STEP}{step}")

    def _end(self, *, whole: bool) -> None:
        """Record the end of the step, or with `whole=False` the end of the script within the step."""
        if self._over:
            return
        facts: dict[str, Any] = {"step": self._step, "seconds": time.perf_counter() - self._step_began}
        compiled = compilations(self._device, compiles=self._facts.compiles)
        if compiled is not None:
            facts["compiled"], self._compiled = compiled - self._compiled, compiled
        memory = memory_of(self._device)
        if memory:
            facts["memory"] = memory
        if not self._tracer.running:
            if whole:
                self._log.write("untraced", **facts)
            return
        self._ranges.suspend()
        if not whole and not self._trained:  # the script ended after its last step
            self._tracer.stop(None)
            return
        path = self._folder / f"step-{self._step:06d}.json"
        size = self._tracer.stop(path)
        self._bytes += size
        self._log.write("traced", file=path.name, bytes=size, whole=whole, blocks=dict(self._blocks), **facts)
        # A trace that left a range open must be the last one; otherwise the first limit that is reached ends tracing.
        request, now = self._request, time.perf_counter()
        if self._tracer.left_open:
            self._finish("open")
        elif request.steps.last is not None and self._step >= request.steps.last:
            self._finish("steps")
        elif self._bytes >= request.limit:
            self._finish("limit")
        elif request.duration is not None and now - (self._began or now) >= request.duration:
            self._finish("duration")

    def _finish(self, why: str) -> None:
        """Stop tracing for good."""
        if not self._over:
            self._over = True
            self._log.write("over", why=why, step=self._step, bytes=self._bytes)

    def _yield(self) -> None:
        """Stop tracing because the script begins its own profiler."""
        self._end(whole=False)
        self._finish("profiler")

    def _block_begins(self, name: str) -> None:
        self._blocks[name] += 1
        self._ranges.enter(name, "block")

    def _range_begins(self, name: str) -> bool:
        """Open a range for a `record_function`.

        The script's own ranges are blocks; those of torch's optimizers are ranges within the phase.
        """
        if not self._ranges.here or OF_COMPILERS in name:
            return False
        if name.startswith(OF_OPTIMIZERS):
            self._ranges.enter(name, "range")
        else:
            self._block_begins(name)
        return True

    def _range_ends(self, name: str) -> None:
        self._ranges.leave(name, "range" if name.startswith(OF_OPTIMIZERS) else "block")

    @contextmanager
    def _cut(self) -> Iterator[None]:
        self._ranges.enter(CUT, "cut")
        try:
            yield
        finally:
            self._ranges.leave(CUT, "cut")

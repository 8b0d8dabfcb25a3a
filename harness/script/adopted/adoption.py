"""The changes that make a script run in its mode. They are installed and removed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import NotAvailable
from ...hooks.mode_protocol import Mode
from ...records.modes.mode_registry import XLA
from ...records.run.adoption_facts import AdoptionFacts
from ...tape.origin import short_place
from ...torch_private.patches import Patches
from ...torch_private.profiling.compile_work import compiled_regions, graph_breaks
from ..script_compiling import AsWritten, ScriptCompiles
from ..understood import ScriptNotes
from .autocast import AutocastRedirection
from .cuda import CudaStandIns
from .devices import ACCELERATORS, DeviceRedirection
from .placement import LeftInPlace, Placement
from .xla_stand_ins import XlaStandIns

NAMED_BREAKS = 3
"""The number of different graph breaks that a run names; it only counts the others."""


class ScriptAdoption:
    """Device redirection, placement, and the routing of torch.compile for one script in one mode.

    Placement and routing are active from the beginning. Call `redirect` only in a process that runs nothing but the
    script. With `as_is`, nothing is placed, and torch.compile does what the script says.
    """

    def __init__(
        self, script: str, mode: Mode, facts: AdoptionFacts, *, draws_on_the_cpu: bool = False, as_is: bool = False
    ) -> None:
        self._mode = mode
        self._draws_on_the_cpu = draws_on_the_cpu
        self._notes = ScriptNotes(facts, script)
        compiler: Any = mode if mode.capabilities.compiles else None
        self._compiles = compiler is not None
        self.placement = (LeftInPlace if as_is else Placement)(mode.device, self._notes)
        self.compiles = ScriptCompiles(AsWritten() if as_is else compiler, self._notes)
        self._patches = Patches("the adoption of the script")

    def redirect(self, *, speaks_of_xla: bool = False) -> None:
        """Redirect to the mode's device everything that the script sends to an accelerator.

        `speaks_of_xla` says whether the script imports torch_xla. If so, torch_xla's device is redirected like an
        accelerator, unless the mode itself needs torch_xla.
        """
        elsewhere = speaks_of_xla and self._mode.capabilities.package != XLA.package
        kinds = (*ACCELERATORS, *(["xla"] if elsewhere else []))
        devices = DeviceRedirection(
            self._mode.device, self._notes, self.placement.meet, kinds, draws_on_the_cpu=self._draws_on_the_cpu
        )
        parts: tuple[Any, ...] = (
            devices,
            *([XlaStandIns(self._mode.device, self._notes, self._mode.mark_step)] if elsewhere else []),
            CudaStandIns(self._mode.device, self._notes),
            AutocastRedirection(self._mode.device, devices.kinds, self._notes),
        )
        with self._patches:
            for part in parts:
                part.install()
                self._patches.also(part.close)
            if self._compiles:
                devices.redirect_traced()

    def forget(self) -> None:
        """Stop reporting. Called in a fork of the recorded process."""
        self._notes.forget()

    def close(self) -> None:
        self.placement.close()
        self._patches.undo()

    def first_step_ended(self, tensors: Sequence[torch.Tensor]) -> None:
        """Report what was compiled in the first step, and a doubt if the step was not executed as the mode states."""
        self.placement.check(tensors)
        if not self._compiles:
            return
        try:
            regions, breaks = compiled_regions(), graph_breaks()
        except NotAvailable:  # the run is valid without these numbers, which only inform the reader
            return
        if not regions:
            self._notes.doubt(
                "the compiler was called but passed nothing to its backend, so the first step ran eagerly: "
                "TORCH_LOGS=graph_breaks shows why"
            )
            return
        text = f"{regions} region{'s' if regions != 1 else ''} compiled, "
        text += f"{len(breaks) or 'no'} graph break{'s' if len(breaks) != 1 else ''}"
        shown = named_breaks([(graph_break.reason, graph_break.source) for graph_break in breaks])
        self._notes.note("compile", text + (f": {shown}" if shown else ""))


def named_breaks(breaks: Sequence[tuple[str, str]]) -> str:
    """Name the first graph breaks by reason and line, each once.

    no such call at model.py:105 (2 times); a read of a value at train.py:7; and 4 more
    """
    counts = Counter(f"{reason} at {short_place(source)}" for reason, source in breaks)
    named = [f"{text} ({count} times)" if count > 1 else text for text, count in list(counts.items())[:NAMED_BREAKS]]
    more = len(counts) - len(named)
    return "; ".join([*named, *([f"and {more} more"] if more else [])])

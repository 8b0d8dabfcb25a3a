"""The support analysis in the script's process: it asks the mode's backend and records the answers."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..errors import NotAvailable
from ..hooks.mode_protocol import Moment
from ..hooks.observer import Observer, Progress, Surroundings
from ..records.tools.support_record import SupportWriter
from ..torch_private.profiling.compile_work import graph_breaks

if TYPE_CHECKING:
    import torch


class SupportInstrument(Observer):
    """Observes from the script's first line to its last.

    With the option `dry`, the backend executes nothing. If the backend cannot do that, the script is not run at all.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self._hooks = ExitStack()
        self._writer = SupportWriter(surroundings.folder)
        self._step = 0
        self._has_model = self._forgotten = False

    def install(self) -> None:
        adapter, dry = self._around.mode.adapter(), bool(self._around.options.get("dry"))
        try:
            if dry:
                self._hooks.enter_context(adapter.without_execution())
        except NotAvailable as error:
            sys.exit(f"numdrift: {error}")
        self._writer.begin(adapter.name, adapter.instruction_set, adapter.versions(), dry=dry)
        self._hooks.enter_context(adapter.observe_support(self._around.config.script, self._writer.called))

    def adopted(self, module: torch.nn.Module) -> None:
        self._has_model = True

    def called(self, module: torch.nn.Module) -> None:
        """Let the mode adopt a model without parameters, which the recorder does not adopt.

        The recorder skips it because there is nothing to train. The first of the script's own modules to be called
        counts as the model.
        """
        # Adopt at most one module: a loss is called after the model, and is never adopted.
        own = type(module).__module__.partition(".")[0] != "torch"
        if not self._has_model and own and next(module.parameters(), None) is None:
            self._has_model = True
            self._around.mode.adopt(module)

    def closing(self, moment: Moment, step: int) -> None:
        self._step = step

    def reached(self, progress: Progress, step: int) -> None:
        self._step = step
        if progress == "step":
            self._writer.count(step - 1)

    def close(self) -> None:
        if self._forgotten:  # a fork: the parent owns the hooks
            return
        try:
            self._hooks.close()
        finally:
            self._writer.count(self._step)
            for broken in graph_breaks():
                at = f" at {broken.source}" if broken.source else ""
                self._writer.note(f"torch.compile breaks the graph{at}: {broken.reason}")
            self._writer.end()

    def forget(self) -> None:
        self._forgotten = True
        self._writer.forget()

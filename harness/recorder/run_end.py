"""The end of a run: the limits at which numdrift ends the script, and the last line of the journal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from ..errors import AdoptionError
from ..hooks.audience import Guard
from ..hooks.mode_protocol import Mode
from ..records import frames
from ..records.run.adoption_facts import AdoptionFacts
from ..records.run.run_config import RunConfig
from ..script.understood import say_ending
from ..tape.files.journal_writing import EventLog
from .parked_memory import device_memory


class RunEnd:
    """Measures the time since the recording began, ends the script at a limit, and writes how the run ended.

    nonfinite: the steps whose loss was not finite
    """

    def __init__(
        self, config: RunConfig, mode: Mode, log: EventLog, facts: AdoptionFacts, guard: Callable[[str], Guard]
    ) -> None:
        self._config = config
        self._mode = mode
        self._log = log
        self._facts = facts
        self._guard = guard
        self._started = time.perf_counter()
        self._limit: dict[str, float] = {}
        self.nonfinite: list[int] = []

    def seconds(self) -> float:
        """Return the seconds since the recording began."""
        return round(time.perf_counter() - self._started, 6)

    def leave_at_limit(self, steps: int) -> None:
        """Raise SystemExit if the run is to end after its first `steps` steps, which have been executed."""
        config = self._config
        if steps == config.max_steps:
            self._limit = {"max_steps": steps}
        elif config.max_seconds is not None and self.seconds() >= config.max_seconds:
            self._limit = {"max_seconds": config.max_seconds}
        if self._limit and config.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._limit or (config.until is not None and steps - 1 > config.until):
            raise SystemExit(0)

    def write(self, status: str, steps: int, facts: dict[str, Any], *, broken: bool, loss_found: bool) -> None:
        """Write the journal's last line. If the script completed, the run's status may still be refused or nonfinite.

        broken: whether the recording stopped before the script did
        loss_found: whether a loss was found in the script
        """
        if status == "complete" and broken:
            facts["message"] = "the recording stopped before the script did"
        if status == "complete":
            with self._guard("closing the journal"):
                say_ending(self._facts, steps, loss_found)
            try:
                self._facts.check()
            except AdoptionError as error:
                status = frames.REFUSED
                facts |= {"message": str(error), "exit_code": error.exit_code}
        if status == "complete" and self.nonfinite:
            status = "nonfinite"
            facts["message"] = f"the loss is not finite from step {self.nonfinite[0]} on"
        with self._guard("reading the device's memory"):
            if memory := device_memory(self._mode.device):
                facts["device_memory"] = memory
        with self._guard("closing the journal"):
            self._log.write("end", status=status, steps=steps, seconds=self.seconds(), **self._limit, **facts)

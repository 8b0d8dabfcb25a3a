"""A recording in a process that continues afterwards: a notebook, or a program with its own training loop."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path

import torch

from ..errors import UsageError
from ..hooks.mode_protocol import ScriptFacts
from ..records import frames
from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import ModeSpec
from ..records.run.adoption_facts import AdoptionFacts
from ..records.run.run_config import RunConfig
from ..script.main_module import end_of, first_line
from ..script.script_api import connection
from ..tape.files.journal_writing import EventLog
from ..tape.step_settings import device_settings
from ..torch_private.compiler.compiling import inductor_settings_kept
from .fingerprint import fingerprint, numeric_variables
from .recorder import Recorder
from .script_process import swaps_of

NEEDS_A_PROCESS = ("python", "timeout", "env", "dtype")
"""Keys of a mode that cannot be applied, or cannot be undone, in a running process."""


class Session:
    """Records this process from `open` to `close`, which restores torch and the environment.

    Generators keep their state: they are seeded only if the mode states a seed. Once started, the lazy backend stays
    active after `close`.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._undo = ExitStack()
        self._recorder: Recorder | None = None

    def open(self, names: frozenset[str]) -> None:
        """Install the mode and the recorder. `names` are the names that occur in the training's code.

        If this raises an error, such as UsageError or NotAvailable, torch and the environment are restored.
        """
        config, spec = self._config, self._config.mode
        log = EventLog(Path(config.journal) / frames.EVENTS)
        log.write("start", schema=frames.JOURNAL_SCHEMA, pid=os.getpid())
        self._undo.callback(log.close)
        try:
            # The mode's settings are restored at the end, in reverse order.
            mode = registry.load(spec.base)(spec)
            if spec.threads is not None:
                self._undo.callback(torch.set_num_threads, torch.get_num_threads())
            if mode.capabilities.compiles:
                # Graphs that were compiled before the recording lack the mode's settings and kernels.
                torch.compiler.reset()
                self._undo.callback(torch.compiler.reset)
                if spec.is_inductor:
                    self._undo.enter_context(inductor_settings_kept(spec.inductor))
            self._undo.callback(_set_device, os.environ.get("DEVICE"))
            _set_device(mode.device)
            swaps = swaps_of(config, log)
            self._undo.callback(swaps.close)
            self._undo.callback(device_settings.declare(mode.device_settings))
            self._undo.callback(mode.leave)
            mode.prepare(ScriptFacts(names), swaps)
            recorder = Recorder(config, mode, log, AdoptionFacts(log.write, strict=config.strict))
            facts = fingerprint(numeric_variables(), numpy=ScriptFacts(names).imports("numpy"))
            log.write("environment", seeded=[], digest=recorder.digest_implementation, **facts)
            recorder.start()
        except BaseException as error:
            with suppress(OSError):
                log.write("end", status=frames.REFUSED, steps=0, seconds=0.0, message=first_line(error), exit_code=2)
            self._undo.close()
            raise
        self._recorder = recorder

    def close(self, error: BaseException | None) -> int:
        """End the recording. Return the run's exit code. `error` is the exception that ended the training, if any."""
        assert self._recorder is not None
        end = end_of(error, self._config.script)
        try:
            self._recorder.finish(end.status, exit_code=end.exit_code, **end.facts())
        finally:
            self._recorder = None
            self._undo.close()
        return end.exit_code


def refuse_what_needs_a_process(spec: ModeSpec) -> None:
    """Raise UsageError for a mode that needs a separate process, or while another recording is active."""
    keys = [key for key in NEEDS_A_PROCESS if getattr(spec, key)]
    if keys:
        raise UsageError(
            f"mode {spec.name!r}: {keys[0]} needs a separate process; put the training into a script and pass the "
            "script to numdrift.run"
        )
    connection.refuse_second()


def _set_device(device: str | None) -> None:
    if device is None:
        os.environ.pop("DEVICE", None)
    else:
        os.environ["DEVICE"] = device

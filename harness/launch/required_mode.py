"""Checks that a mode is available, before anything is started.

Only a process of a mode touches the mode's device and loads its vendor's package, so such a process makes the check.
For a mode without an accelerator, this process itself makes the check.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from numdrift.kernels.registry import load_target

from ..errors import NotAvailable, NumdriftError, UsageError
from ..records.modes.mode_spec import ModeSpec
from .guest_process import guest_command, interpreter, run_to_end

PRESENCE = "numdrift.harness.backends.mode_presence:require_here"
ADAPTERS = "numdrift.harness.hooks.backend_adapter:adapter_for"
"""Both targets import torch. They are loaded by name, because a help text must not import torch."""

PROCESS = "numdrift.harness.recorder.presence_process"

PATIENCE = 180.0
"""A process is abandoned if it does not answer within this number of seconds."""


def require_mode(spec: ModeSpec, script: str = "", *, dry: bool = False) -> None:
    """Raise UsageError or NotAvailable if a mode or this machine lacks something.

    With a `script`, the mode's backend must also be able to report the script's operators. With `dry`, it must be able
    to do so without executing them.
    """
    if spec.accelerator is None:
        load_target(PRESENCE)(spec)
        if script:
            adapter = load_target(ADAPTERS)(spec)
            adapter.observe_support(script, lambda call: None)
            if dry:
                adapter.without_execution()
        return
    lacking = _lacking(spec, script, dry=dry)
    if lacking is None:
        return
    if "what" in lacking:
        raise NotAvailable(str(lacking["what"]), str(lacking["why"]), str(lacking["remedy"]))
    kind = UsageError if lacking.get("exit_code") == UsageError.exit_code else NumdriftError
    raise kind(str(lacking["message"]))


def _lacking(spec: ModeSpec, script: str, *, dry: bool) -> dict[str, Any] | None:
    """Ask a process of the mode what the mode lacks. Return None if nothing is missing."""
    with tempfile.TemporaryDirectory(prefix="numdrift-") as folder:
        config, answer = Path(folder, "config.json"), Path(folder, "answer.json")
        request = {"mode": spec.to_json(), "script": script, "dry": dry, "answer": str(answer)}
        config.write_text(json.dumps(request), encoding="utf-8")
        try:
            done = run_to_end(guest_command(config, python=interpreter(spec), module=PROCESS), spec, PATIENCE)
        except subprocess.TimeoutExpired:
            raise NotAvailable(f"mode {spec.name!r}", f"its process did not answer within {PATIENCE:.0f} s") from None
        except OSError as error:
            raise NotAvailable(f"mode {spec.name!r}", f"its process cannot be started: {error}") from None
        try:
            lacking: dict[str, Any] | None = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last_line = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise NotAvailable(f"mode {spec.name!r}", f"its process failed: {last_line}") from None
        return lacking

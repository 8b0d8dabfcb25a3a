"""Whether a mode can be here at all, asked before anything is started."""

from __future__ import annotations

from ..records.mode_registry import registry
from ..records.mode_spec import ModeSpec

OPENER = "numdrift.harness.backends.opened_device:open_devices"
"""What a process calls that is to make devices ready and cannot import that module, which lies above its own."""


def require_here(spec: ModeSpec) -> None:
    """Raise NotAvailable or UsageError where this machine lacks a mode's device, package or backend.

    One with an interpreter of its own has them there, and is not asked.
    """
    if spec.python is not None:
        return
    mode = registry.load(spec.base)(spec)
    asked = getattr(mode, "require_here", None)  # a plug-in's mode may have none
    if asked is not None:
        asked()

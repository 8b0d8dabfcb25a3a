"""Check that a mode can run on this machine before anything is started."""

from __future__ import annotations

from ..records.modes.mode_registry import registry
from ..records.modes.mode_spec import ModeSpec

OPENER = "numdrift.harness.backends.opened_device:open_devices"
"""The name of the function that makes devices ready, for modules of lower levels, which cannot import the function."""


def require_here(spec: ModeSpec) -> None:
    """Raise NotAvailable or UsageError if this machine lacks a mode's device, package or backend.

    A mode with its own interpreter is not checked, because that interpreter has its own packages.
    """
    if spec.python is None:
        registry.load(spec.base)(spec).require_here()

"""Whether a mode can be here at all, asked before anything is started."""

from __future__ import annotations

from ..records.mode_registry import registry
from ..records.mode_spec import ModeSpec
from .compiled.mode import CompileMode, require_backend
from .eager.mode import EagerMode, require_device
from .xla.mode import XlaMode, require_xla


def require_here(spec: ModeSpec) -> None:
    """Raise NotAvailable or UsageError where this machine lacks a mode's device, package or backend.

    One with an interpreter of its own has them there, and is not asked.
    """
    if spec.python is not None:
        return
    mode = registry.load(spec.base)(spec)
    if isinstance(mode, CompileMode):
        require_backend(spec.name, mode.backend)
    if isinstance(mode, XlaMode):
        require_xla()
    if isinstance(mode, (CompileMode, EagerMode)):
        require_device(mode.device)

"""The stand-in for a mode whose single ops cannot be followed: the same script with every op executed by itself."""

from __future__ import annotations

from ...records.modes.mode_spec import ModeSpec
from .setting_axes import UNCOMPILED, with_setting


def stand_in(spec: ModeSpec) -> ModeSpec | None:
    """Return the mode without its compiler or its lazy graphs; None for a mode that executes op by op itself."""
    if spec.capabilities.compiles:
        return with_setting(spec, f"backend={UNCOMPILED}")
    return None if spec.capabilities.has_values else spec.with_values()

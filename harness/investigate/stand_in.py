"""The stand-in for a mode whose single ops cannot be followed: the same script with every op executed by itself."""

from __future__ import annotations

from ..records.mode_spec import WITHOUT_VALUES, ModeSpec
from .setting_axes import UNCOMPILED, with_setting


def stand_in(spec: ModeSpec) -> ModeSpec | None:
    """The mode without its compiler or its lazy graphs, None for one that executes op by op itself."""
    if spec.base == "compile":
        return with_setting(spec, f"backend={UNCOMPILED}")
    if spec.base in WITHOUT_VALUES:
        return spec.with_values()
    return None

"""What stands for a mode whose single ops cannot be followed: the same script with every op executed by itself."""

from __future__ import annotations

from dataclasses import replace

from ..records.mode_spec import ModeSpec
from .compiler_settings import UNCOMPILED, with_setting

WITHOUT_VALUES = ("lazy", "xla")
"""Modes whose ops have no values when they are called."""


def stand_in(spec: ModeSpec) -> ModeSpec | None:
    """The mode without its compiler or its lazy graphs, None for one that executes op by op itself."""
    if spec.base == "compile":
        return with_setting(spec, f"backend={UNCOMPILED}")
    if spec.base == "lazy":
        return replace(spec, base="cpu", device=None, mark_step=None, execute=None)
    return None

"""The mode of numdrift for the device."""

from __future__ import annotations

import importlib

from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.hooks.mode_protocol import ScriptFacts
from numdrift.kernels.swaps.engine import Swaps


class StandinMode(EagerMode):
    """Eager execution on the device, which torch knows once its package is imported."""

    def require_here(self) -> None:
        importlib.import_module("standin_device")
        super().require_here()

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        importlib.import_module("standin_device")
        super().prepare(script, swaps)

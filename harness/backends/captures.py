"""Which capture serves which mode; the others are not imported."""

from __future__ import annotations

import importlib

from ..hooks.graph_capture import Capture
from .capture_request import CaptureRequest

CAPTURES = {
    "compile": "compiled.compiled_and_eager:CompiledAndEager",
    "lazy": "lazy.capture:LazyCapture",
    "xla": "",
}
"""By the base of the mode; every other one is eager."""


def capture_for(base: str, request: CaptureRequest) -> Capture | None:
    """The capture for a mode of this base, None where there is none."""
    module, _, name = CAPTURES.get(base, "eager.eager_until_compiled:EagerUntilCompiled").partition(":")
    if not module:
        return None
    made: Capture = getattr(importlib.import_module(f".{module}", __package__), name)(request)
    return made

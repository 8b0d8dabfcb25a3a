"""Choose a mode's graph capture without importing the others, and define the request that a capture is made from."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import torch

from ..hooks.mode_protocol import Capture
from ..records.tools.graph_record import GraphFolder

# The request that a capture is made from.

NamedTensors = Callable[[], Mapping[str, torch.Tensor]]
"""Returns the script's tensors by name, as `parameter net.0.weight` and `gradient net.0.weight`."""


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """The request for a capture.

    folder: where the graphs are written.
    script: the path of the script.
    steps: the steps to capture.
    named_tensors: returns the script's tensors by name.
    failed: receives a failure of the capture.
    """

    folder: GraphFolder
    script: str
    steps: Container[int]
    named_tensors: NamedTensors
    failed: Callable[[Exception], None]


CAPTURES = {
    "compile": "compiled.compiled_and_eager:CompiledAndEager",
    "lazy": "lazy.capture:LazyCapture",
    "xla": "xla.capture:XlaCapture",
}
"""The captures by the base of the mode. Modes of any other base are eager."""


def capture_for(base: str, request: CaptureRequest) -> Capture | None:
    """Return the capture for a mode of this base, None if there is none."""
    module, _, name = CAPTURES.get(base, "compiled.compiled_and_eager:EagerUntilCompiled").partition(":")
    if not module:
        return None
    made: Capture = getattr(importlib.import_module(f".{module}", __package__), name)(request)
    return made

"""Which capture of graphs serves which mode, and what a capture is made with; the others are not imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import torch

from ..hooks.mode_protocol import Capture
from ..records.graph_record import GraphFolder

# What a capture is made with.

NamedTensors = Callable[[], Mapping[str, torch.Tensor]]
"""What the script's tensors are called, as in `parameter net.0.weight` and `gradient net.0.weight`."""


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """The script's path, the steps wanted, and where names come from and failures go."""

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
"""By the base of the mode; every other one is eager."""


def capture_for(base: str, request: CaptureRequest) -> Capture | None:
    """The capture for a mode of this base, None where there is none."""
    module, _, name = CAPTURES.get(base, "compiled.compiled_and_eager:EagerUntilCompiled").partition(":")
    if not module:
        return None
    made: Capture = getattr(importlib.import_module(f".{module}", __package__), name)(request)
    return made

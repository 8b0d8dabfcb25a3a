"""What a capture is made with."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import torch

from ..records.graph_folder import GraphFolder

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

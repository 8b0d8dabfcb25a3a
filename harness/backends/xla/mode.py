"""torch_xla (PJRT), usually in an interpreter of its own (`xla,python=/path/to/python`)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...errors import NotAvailable
from ...hooks.backend_adapter import Adapter, load_adapter
from ...hooks.mode_protocol import Moment, ScriptFacts
from ...records.mode_spec import ModeSpec
from ..eager.mode import EagerMode


class XlaMode:
    """Executes on the device `xla`; a mark_step after each backward and optimizer step, or by policy."""

    device = "xla"

    def __init__(self, spec: ModeSpec) -> None:
        self.policy = spec.mark_step or "auto"
        self.eager = EagerMode(spec)
        self._model: Any = None

    def require_here(self) -> None:
        require_xla()

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        require_xla()
        self._model = importlib.import_module("torch_xla.core.xla_model")
        if self.eager.spec.seed is not None:
            torch.manual_seed(self.eager.spec.seed)
        self.eager.swaps = swaps
        swaps.install(self.device)

    def adopt(self, module: torch.nn.Module) -> None:
        self.eager.adopt(module)

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        places = {"auto": ("backward", "step"), "phase": ("backward", "step"), "step": ("step",)}
        self.eager.close(moment)
        if moment in places.get(self.policy, ()):
            self._model.mark_step()
        if settled is not None:
            settled()

    def mark_step(self) -> None:
        """The script says that the graph may be cut here."""
        if self.policy in ("auto", "phase"):
            self._model.mark_step()

    def adapter(self) -> Adapter:
        return load_adapter("xla.adapter:XlaAdapter", self.eager.spec)

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor.detach().cpu() for tensor in tensors]


def require_xla() -> None:
    """Raise NotAvailable where torch_xla is not installed."""
    if importlib.util.find_spec("torch_xla") is None:
        raise NotAvailable(
            "mode 'xla'",
            f"torch_xla is not installed beside torch {torch.__version__}",
            "install torch_xla in an environment of its own and give the mode python=/path/to/its/python",
        )

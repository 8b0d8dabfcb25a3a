"""A GRU's layer norm has another eps, a weight's gradient counts twice, and the weight decay is missing."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training, modules
from torch import Tensor, nn

MODELS = ("gru",)
MODES = ("cpu", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = (
    {"phase": "forward", "op": "native_layer_norm"},
    {"phase": "backward"},
    {"phase": "optimizer"},
)


class AdamW(optimizers.AdamW):
    def decay(self, p: Tensor, group: dict[str, Any]) -> None:
        pass


def plant(training: Training) -> None:
    modules(training, nn.LayerNorm)[0].eps = 1e-3
    next(p for p in training.model.parameters() if p.dim() == 2).register_hook(lambda gradient: 2 * gradient)
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)

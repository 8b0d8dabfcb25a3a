"""What a layer gives is scaled by 1.01, in a training that is compiled: the compiler has no part in it."""

from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("tanh_sam", "gru")
MODES = ("compile",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    last = modules(training, nn.Linear)[-1]

    def forward(x: Tensor) -> Tensor:
        return nn.functional.linear(x, last.weight, last.bias) * 1.01

    replace(last, forward)

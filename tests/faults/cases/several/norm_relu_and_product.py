"""A batch norm has TensorFlow's eps, ReLU's derivative passes everything, and the last product is in TF32."""

from tests.faults.training import KERNELS, Training, modules
from torch import Tensor, nn

MODELS = ("cnn",)
MODES = ("cpu,kernel.addmm=tf32",)
EXPECTED = "beyond-rounding"
CULPRIT = (
    {"phase": "forward", "op": "native_batch_norm"},
    {"phase": "backward", "op": "threshold_backward"},
    {"phase": "forward", "op": "addmm"},
)


def plant(training: Training) -> None:
    modules(training, nn.BatchNorm2d)[1].eps = 1e-3
    KERNELS.impl("threshold_backward", threshold_backward, "CPU")


def threshold_backward(grad: Tensor, output: Tensor, threshold: float) -> Tensor:
    return grad * (output >= threshold)

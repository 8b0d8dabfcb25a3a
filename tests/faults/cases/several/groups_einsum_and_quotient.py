"""Group norm takes other groups, einsum's products and Adam's quotient are in bfloat16."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("unet",)
MODES = (
    "cpu,kernel.bmm=bf16,kernel.addcdiv=bf16",
    "compile,kernel.bmm=bf16,kernel.addcdiv=bf16",
)
EXPECTED = "beyond-rounding"
CULPRIT = (
    {"phase": "forward", "module": "block2.norm"},
    {"module": "gate", "op": "bmm"},
    {"phase": "optimizer", "op": "addcdiv_"},
)


def plant(training: Training) -> None:
    modules(training, nn.GroupNorm)[1].num_groups = 4

"""The derivative of SiLU is in bfloat16, and gradients are clipped to another norm."""

from tests.faults.training import Training

MODELS = ("unet",)
MODES = (
    "cpu,kernel.silu_backward=bf16",
    "compile,kernel.silu_backward=bf16",
    "lazy,kernel.silu_backward=bf16",
)
EXPECTED = "beyond-rounding"
CULPRIT = ({"phase": "backward", "op": "silu_backward"}, {"phase": "optimizer"})


def plant(training: Training) -> None:
    assert training.clip is not None
    training.clip *= 0.9

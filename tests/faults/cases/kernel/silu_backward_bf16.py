"""The derivative of SiLU is computed in bfloat16, in each way of executing it."""

MODELS = ("unet",)
MODES = (
    "cpu,kernel.silu_backward=bf16",
    "compile,kernel.silu_backward=bf16",
    "lazy,kernel.silu_backward=bf16",
)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "silu_backward"}

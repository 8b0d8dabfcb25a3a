"""As tanh_backward_bf16, in lazy mode."""

MODELS = ("tanh_sam",)
MODES = ("lazy,kernel.tanh_backward=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward"}

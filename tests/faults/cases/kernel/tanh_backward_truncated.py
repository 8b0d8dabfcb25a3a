"""As tanh_backward_bf16, but cut off instead of rounded: the error has a sign and adds up."""

MODELS = ("tanh_sam",)
MODES = ("cpu,kernel.tanh_backward=bf16_truncated",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward"}

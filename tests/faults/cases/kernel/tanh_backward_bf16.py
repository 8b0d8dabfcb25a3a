"""The derivative of tanh squares its output in bfloat16: one part in 256 is lost."""

MODELS = ("tanh_sam", "gru")
MODES = ("cpu,kernel.tanh_backward=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward"}

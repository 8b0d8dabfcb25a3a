"""As tanh_backward_bf16, within a graph that inductor compiled."""

MODELS = ("tanh_sam",)
MODES = ("compile,kernel.tanh_backward=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward"}

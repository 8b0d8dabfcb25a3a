"""The derivative of the gates is computed in bfloat16."""

MODELS = ("gru", "bag")
MODES = ("cpu,kernel.sigmoid_backward=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "sigmoid_backward"}

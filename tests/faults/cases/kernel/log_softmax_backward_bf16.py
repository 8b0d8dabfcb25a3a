"""The gradient of the loss itself is computed in bfloat16."""

MODELS = ("gru", "transformer")
MODES = ("cpu,kernel._log_softmax_backward_data=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "_log_softmax_backward_data"}

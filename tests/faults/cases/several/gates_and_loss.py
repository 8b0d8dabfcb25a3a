"""The derivative of the sigmoid and that of the loss are computed in bfloat16."""

MODELS = ("gru",)
MODES = (
    "cpu,kernel.sigmoid_backward=bf16,kernel._log_softmax_backward_data=bf16",
    "compile,kernel.sigmoid_backward=bf16,kernel._log_softmax_backward_data=bf16",
    "lazy,kernel.sigmoid_backward=bf16,kernel._log_softmax_backward_data=bf16",
)
EXPECTED = "beyond-rounding"
CULPRIT = (
    {"phase": "backward", "op": "sigmoid_backward"},
    {"phase": "backward", "op": "_log_softmax_backward_data"},
)

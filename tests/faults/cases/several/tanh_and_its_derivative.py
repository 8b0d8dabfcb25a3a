"""tanh and its derivative are computed in bfloat16, in each way of executing them."""

MODELS = ("tanh_sam", "gru")
MODES = (
    "cpu,kernel.tanh=bf16,kernel.tanh_backward=bf16",
    "compile,kernel.tanh=bf16,kernel.tanh_backward=bf16",
    "lazy,kernel.tanh=bf16,kernel.tanh_backward=bf16",
)
EXPECTED = "beyond-rounding"
CULPRIT = ({"phase": "forward", "op": "tanh"}, {"phase": "backward", "op": "tanh_backward"})

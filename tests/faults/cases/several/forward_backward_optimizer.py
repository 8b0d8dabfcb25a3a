"""A kernel of each phase computes in bfloat16: softmax, the derivative of layer norm, Adam's quotient."""

MODELS = ("transformer",)
MODES = (
    "cpu,kernel._softmax=bf16,kernel.native_layer_norm_backward=bf16,kernel.addcdiv=bf16",
    "compile,kernel._softmax=bf16,kernel.native_layer_norm_backward=bf16,kernel.addcdiv=bf16",
    "lazy,kernel._softmax=bf16,kernel.native_layer_norm_backward=bf16,kernel.addcdiv=bf16",
)
EXPECTED = "beyond-rounding"
CULPRIT = (
    {"phase": "forward", "op": "_softmax"},
    {"phase": "backward", "op": "native_layer_norm_backward"},
    {"phase": "optimizer", "op": "addcdiv_"},
)

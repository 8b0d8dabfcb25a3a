"""The backward of layer norm computes in bfloat16."""

MODELS = ("transformer", "gru")
MODES = ("cpu,kernel.native_layer_norm_backward=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "native_layer_norm_backward"}

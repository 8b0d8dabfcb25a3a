"""Layer norm cancels in one pass, the derivative of GELU and Adam's second moments are in bfloat16."""

MODELS = ("autoencoder",)
MODES = ("cpu,kernel.native_layer_norm=one_pass,kernel.gelu_backward=bf16,kernel._foreach_addcmul=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = (
    {"phase": "forward", "module": "scale", "op": "native_layer_norm"},
    {"phase": "backward", "op": "gelu_backward"},
    {"phase": "optimizer", "op": "_foreach_addcmul_"},
)

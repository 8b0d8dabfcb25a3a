"""One-pass layer norm where values lie around zero, so nothing cancels."""

MODELS = ("transformer", "gru")
MODES = ("cpu,kernel.native_layer_norm=one_pass",)
EXPECTED = "rounding"

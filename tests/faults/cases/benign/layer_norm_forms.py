"""Layer norm in two passes, by Welford, shifted, from the back; its derivative centred."""

MODELS = ("transformer", "gru", "autoencoder")
MODES = (
    "cpu,kernel.native_layer_norm=two_pass",
    "cpu,kernel.native_layer_norm=welford",
    "cpu,kernel.native_layer_norm=shifted",
    "cpu,kernel.native_layer_norm=reversed",
    "cpu,kernel.native_layer_norm_backward=centered",
    "cpu,kernel.native_layer_norm_backward=linear_form",
    "cpu,kernel.native_layer_norm_backward=reversed",
)
EXPECTED = "rounding"

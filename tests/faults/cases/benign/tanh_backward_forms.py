"""The derivative of tanh in all its float32 forms."""

MODELS = ("tanh_sam", "gru")
MODES = (
    "cpu,kernel.tanh_backward=decomposed",
    "cpu,kernel.tanh_backward=fma",
    "cpu,kernel.tanh_backward=mac",
    "cpu,kernel.tanh_backward=mac_unfused",
    "cpu,kernel.tanh_backward=factored",
)
EXPECTED = "rounding"

"""Sigmoid through tanh, on two sides, and its derivative with fused products."""

MODELS = ("gru", "bag")
MODES = (
    "cpu,kernel.sigmoid=tanh_form",
    "cpu,kernel.sigmoid=two_sided",
    "cpu,kernel.sigmoid_backward=left_to_right",
    "cpu,kernel.sigmoid_backward=fma",
    "cpu,kernel.sigmoid_backward=mac",
)
EXPECTED = "rounding"

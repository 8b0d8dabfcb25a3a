"""Inductor, whose C++ compiler may contract products and sums."""

MODELS = ("tanh_sam", "gru", "cnn", "unet")
MODES = ("compile,contract=fast",)
EXPECTED = "rounding"

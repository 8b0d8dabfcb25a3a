"""Inductor: fused loops, other sums, decomposed derivatives."""

MODELS = ("tanh_sam", "transformer", "cnn", "gru", "mixed", "bag", "unet")
MODES = ("compile",)
EXPECTED = "rounding"

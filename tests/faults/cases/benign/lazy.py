"""Lazy tensors: graphs of a step, executed by TorchScript."""

MODELS = ("tanh_sam", "transformer", "cnn", "gru", "bag")
MODES = ("lazy",)
EXPECTED = "rounding"

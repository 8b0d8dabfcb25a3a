"""Inductor: fused loops, other sums, decomposed derivatives."""

MODELS = (
    "tanh_sam",
    "transformer",
    "cnn",
    "gru",
    "mixed",
    "bag",
    "unet",
    "memory",
    "rollout",
    "replay",
    "bookkeeping",
    "settings",
)
MODES = ("compile",)
EXPECTED = "rounding"

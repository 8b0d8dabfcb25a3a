"""Sums, those of the bias gradients among them, accumulate in bfloat16, in a model of 16 bits."""

MODELS = ("half", "scaled", "mixed")
MODES = ("cpu,kernel.sum=bf16",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"op": ("sum", "mean", "mse_loss")}

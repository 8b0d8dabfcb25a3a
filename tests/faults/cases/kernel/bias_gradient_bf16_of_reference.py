"""Sums accumulate in bfloat16 on the reference's side, in a model of 16 bits."""

MODELS = ("half", "mixed")
MODES = ("cpu,kernel.sum=bf16",)
AGAINST = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"op": ("sum", "mean", "mse_loss")}

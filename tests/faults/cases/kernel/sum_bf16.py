"""Sums, those of the bias gradients among them, accumulate in bfloat16."""

MODELS = ("tanh_sam", "autoencoder")
MODES = ("cpu,kernel.sum=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"op": ("sum", "mse_loss")}

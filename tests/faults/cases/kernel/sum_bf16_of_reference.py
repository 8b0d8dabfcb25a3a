"""Sums accumulate in bfloat16 on the reference's side, by a kernel that its mode puts in place."""

MODELS = ("tanh_sam", "autoencoder")
MODES = ("cpu,kernel.sum=bf16",)
AGAINST = ("cpu",)
EXPECTED = "beyond-rounding"
CULPRIT = {"op": ("sum", "mse_loss")}

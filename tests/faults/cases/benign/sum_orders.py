"""Sums from the back, in pairs, one by one, compensated."""

MODELS = ("tanh_sam", "autoencoder", "bag", "unet")
MODES = (
    "cpu,kernel.sum=reversed",
    "cpu,kernel.sum=pairwise",
    "cpu,kernel.sum=sequential",
    "cpu,kernel.sum=kahan",
)
EXPECTED = "rounding"

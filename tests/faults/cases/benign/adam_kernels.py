"""Adam's kernels of single tensors in other orders."""

MODELS = ("unet", "transformer")
MODES = (
    "cpu,kernel.addcdiv=quotient_first",
    "cpu,kernel.addcmul=product_first",
    "cpu,kernel.lerp=one_sided",
)
EXPECTED = "rounding"

"""Adam's list kernels one tensor at a time, by decomposition."""

MODELS = ("autoencoder",)
MODES = (
    "cpu,kernel._foreach_addcdiv=decomposed",
    "cpu,kernel._foreach_lerp=decomposed",
    "cpu,kernel._foreach_addcmul=decomposed",
)
EXPECTED = "rounding"

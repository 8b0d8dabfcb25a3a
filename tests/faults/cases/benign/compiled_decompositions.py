"""torch.compile with inductor's decompositions and eager kernels."""

MODELS = ("transformer", "gru", "unet")
MODES = ("compile,backend=aot_eager_decomp_partition",)
EXPECTED = "rounding"

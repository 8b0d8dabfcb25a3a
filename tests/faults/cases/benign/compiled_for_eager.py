"""torch.compile down to the graphs that eager kernels execute."""

MODELS = ("transformer", "tanh_sam", "unet")
MODES = ("compile,backend=aot_eager",)
EXPECTED = "rounding"

"""torch.compile down to the graphs that eager kernels execute."""

MODELS = ("transformer", "tanh_sam")
MODES = ("compile,backend=aot_eager",)
EXPECTED = "rounding"

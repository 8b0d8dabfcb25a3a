"""Two threads instead of the default."""

MODELS = ("cnn", "transformer", "unet")
MODES = ("cpu,threads=2",)
EXPECTED = "rounding"

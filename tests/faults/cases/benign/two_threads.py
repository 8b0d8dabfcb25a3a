"""Two threads instead of the default."""

MODELS = ("cnn", "transformer")
MODES = ("cpu,threads=2",)
EXPECTED = "rounding"

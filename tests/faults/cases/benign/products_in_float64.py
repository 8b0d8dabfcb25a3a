"""Products computed in float64 and rounded once."""

MODELS = ("transformer", "cnn")
MODES = ("cpu,kernel.addmm=fp64", "cpu,kernel.mm=fp64")
EXPECTED = "rounding"

"""The training in bfloat16, compiled: nothing is planted."""

MODELS = ("rotary",)
MODES = ("compile", "compile,backend=aot_eager", "lazy")
EXPECTED = "rounding"

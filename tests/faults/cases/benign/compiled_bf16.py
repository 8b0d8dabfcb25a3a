"""The training in bfloat16, compiled: nothing is planted."""

MODELS = ("rotary",)
MODES = ("compile", "compile,backend=aot_eager")  # lazy tensors know no power of a number
EXPECTED = "rounding"

"""A training in float16, compiled: nothing is planted."""

MODELS = ("half", "scaled")
MODES = ("compile", "compile,backend=aot_eager", "compile,emulate_casts=on")
EXPECTED = "rounding"

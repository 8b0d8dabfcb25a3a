"""Inductor keeps the casts by which the script rounds: nothing is planted."""

MODELS = ("casts",)
MODES = ("compile,emulate_casts=on", "compile,backend=aot_eager")
EXPECTED = "rounding"

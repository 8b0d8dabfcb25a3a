"""Inductor keeps the casts to bfloat16 that it elides otherwise."""

MODELS = ("mixed",)
MODES = ("compile,emulate_casts=on",)
EXPECTED = "rounding"

"""Formulas, choices and script-set threads, compiled: nothing is planted."""

MODELS = ("formulas", "choices")
MODES = ("compile", "lazy")
EXPECTED = "rounding"

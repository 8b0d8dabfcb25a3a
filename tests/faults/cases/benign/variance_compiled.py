"""Inductor takes the variance of numbers far from zero in float32, where eager takes it in double: nothing is planted."""

MODELS = ("standardized",)
MODES = ("compile",)
EXPECTED = "rounding"

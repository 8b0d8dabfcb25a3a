"""Inductor's integer quotient is the floor of a rounded one, so that some rows of a table are others: nothing is planted."""

MODELS = ("quantized",)
MODES = ("compile",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "hours"}

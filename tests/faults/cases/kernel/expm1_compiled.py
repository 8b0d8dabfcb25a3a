"""Inductor takes exp(x) - 1 for expm1(x), which loses most digits of small x: nothing is planted."""

MODELS = ("interest",)
MODES = ("compile", "compile,emulate_casts=on")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "interest"}

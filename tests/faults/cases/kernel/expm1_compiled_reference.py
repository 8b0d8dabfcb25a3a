"""The reference is compiled, and takes exp(x) - 1 for expm1(x): nothing is planted."""

MODELS = ("interest",)
MODES = ("compile",)
AGAINST = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "interest"}

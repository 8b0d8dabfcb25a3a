"""The reference is compiled, and drops a cast to bfloat16 and back, by which the script rounds: nothing is planted."""

MODELS = ("casts",)
MODES = ("compile",)
AGAINST = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "narrow"}

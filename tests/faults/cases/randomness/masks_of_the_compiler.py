"""Inductor draws its masks from a stream of its own unless it is told otherwise."""

MODELS = ("autoencoder",)
MODES = ("compile,fallback_random=off",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "forward", "module": "drop"}

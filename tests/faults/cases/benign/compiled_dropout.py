"""Inductor with torch's own random numbers (`investigate` asks for them)."""

MODELS = ("autoencoder",)
MODES = ("compile",)
EXPECTED = "rounding"

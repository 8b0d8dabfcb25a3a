"""Means from the back and in pairs."""

MODELS = ("autoencoder", "bag")
MODES = ("cpu,kernel.mean=reversed", "cpu,kernel.mean=pairwise")
EXPECTED = "rounding"

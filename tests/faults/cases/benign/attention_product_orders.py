"""Attention's products split along K, from the back."""

MODELS = ("transformer",)
MODES = ("cpu,kernel.bmm=split_k", "cpu,kernel.bmm=reversed_k", "cpu,kernel.bmm=sequential")
EXPECTED = "rounding"

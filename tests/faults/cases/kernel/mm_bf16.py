"""The products of linear layers' backward are taken in bfloat16."""

MODELS = ("gru", "autoencoder")
MODES = ("cpu,kernel.mm=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "mm"}

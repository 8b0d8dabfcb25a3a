"""The attention weights are computed in bfloat16."""

MODELS = ("transformer",)
MODES = ("cpu,kernel._softmax=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "_softmax"}

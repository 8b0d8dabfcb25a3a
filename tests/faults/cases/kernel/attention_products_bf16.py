"""Attention multiplies in bfloat16 though the training is in float32."""

MODELS = ("transformer",)
MODES = ("cpu,kernel.bmm=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": ("forward", "backward"), "op": "bmm"}

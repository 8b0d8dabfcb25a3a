"""AdamW divides its moments in bfloat16, one tensor at a time."""

MODELS = ("unet", "transformer")
MODES = ("cpu,kernel.addcdiv=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer", "op": "addcdiv_"}

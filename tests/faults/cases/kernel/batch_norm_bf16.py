"""Batch norm takes its statistics in bfloat16."""

MODELS = ("cnn",)
MODES = ("cpu,kernel.native_batch_norm=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_batch_norm"}

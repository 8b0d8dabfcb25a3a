"""The fused AdamW keeps its moments with bfloat16's digits."""

MODELS = ("mixed",)
MODES = ("cpu,kernel._fused_adamw_=bf16_moments",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer", "op": "_fused_adamw_"}

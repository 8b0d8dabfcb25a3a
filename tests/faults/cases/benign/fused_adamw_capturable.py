"""The fused AdamW in the order of operations of the capturable one."""

MODELS = ("mixed",)
MODES = ("cpu,kernel._fused_adamw_=capturable",)
EXPECTED = "rounding"

"""Adam divides its moments in bfloat16."""

MODELS = ("autoencoder",)
MODES = ("cpu,kernel._foreach_addcdiv=bf16",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer", "op": "_foreach_addcdiv_"}

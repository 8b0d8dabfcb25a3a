"""Linear layers multiply with TF32's 10 bits, as GPUs do where it is allowed."""

MODELS = ("tanh_sam", "cnn")
MODES = ("cpu,kernel.addmm=tf32",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "addmm"}

"""Lazy tensors: graphs of a step, executed by TorchScript."""

MODELS = ("tanh_sam", "transformer", "cnn", "gru", "bag", "unet")
MODES = ("lazy", "lazy,kernel.mm=split_k", "lazy,kernel.sum=reversed")
EXPECTED = "rounding"

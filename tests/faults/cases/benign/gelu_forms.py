"""GELU through erfc, with fused products, distributed; its derivative alike."""

MODELS = ("transformer", "autoencoder")
MODES = (
    "cpu,kernel.gelu=erfc",
    "cpu,kernel.gelu=fma",
    "cpu,kernel.gelu=distributed",
    "cpu,kernel.gelu_backward=decomposed",
    "cpu,kernel.gelu_backward=erfc",
    "cpu,kernel.gelu_backward=fma",
    "cpu,kernel.gelu_backward=distributed",
)
EXPECTED = "rounding"

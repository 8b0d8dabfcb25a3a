"""SiLU through exp and tanh, with a fused product; its derivative in other orders, compiled and lazy as well."""

MODELS = ("unet",)
MODES = (
    "cpu,kernel.silu=exp_form",
    "cpu,kernel.silu=tanh_form",
    "cpu,kernel.silu_backward=expanded",
    "compile,kernel.silu_backward=fma",
    "lazy,kernel.silu_backward=derivative_first",
)
EXPECTED = "rounding"

"""Batch norm in two passes, in one, by Welford; its derivative centred."""

MODELS = ("cnn",)
MODES = (
    "cpu,kernel.native_batch_norm=two_pass",
    "cpu,kernel.native_batch_norm=one_pass",
    "cpu,kernel.native_batch_norm=welford",
    "cpu,kernel.native_batch_norm=shifted",
    "cpu,kernel.native_batch_norm=reversed",
    "cpu,kernel.native_batch_norm_backward=centered",
)
EXPECTED = "rounding"

"""The logarithm of softmax in other forms."""

MODELS = ("gru", "cnn", "transformer")
MODES = (
    "cpu,kernel._log_softmax=online",
    "cpu,kernel._log_softmax=reversed",
    "cpu,kernel._log_softmax=without_max",
    "cpu,kernel._log_softmax_backward_data=renormalized",
)
EXPECTED = "rounding"

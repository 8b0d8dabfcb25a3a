"""Softmax online, from the back, without subtracting the largest; its derivative factored."""

MODELS = ("transformer",)
MODES = (
    "cpu,kernel._softmax=online",
    "cpu,kernel._softmax=reversed",
    "cpu,kernel._softmax=without_max",
    "cpu,kernel._softmax_backward_data=factored",
)
EXPECTED = "rounding"

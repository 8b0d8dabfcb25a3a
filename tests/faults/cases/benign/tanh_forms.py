"""tanh through exp, expm1 and sigmoid."""

MODELS = ("tanh_sam", "gru", "memory", "rollout", "replay", "bookkeeping", "settings")
MODES = ("cpu,kernel.tanh=expm1_form", "cpu,kernel.tanh=sigmoid_form", "cpu,kernel.tanh=rational")
EXPECTED = "rounding"

"""Matrix products split along K, from the back, one by one."""

MODELS = ("tanh_sam", "gru", "autoencoder")
MODES = (
    "cpu,kernel.mm=split_k",
    "cpu,kernel.mm=reversed_k",
    "cpu,kernel.mm=sequential",
    "cpu,kernel.addmm=split_k",
    "cpu,kernel.addmm=reversed_k",
    "cpu,kernel.addmm=sequential",
)
EXPECTED = "rounding"

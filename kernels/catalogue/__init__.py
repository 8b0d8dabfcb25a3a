"""Which kernels exist, as records: nothing here imports torch."""

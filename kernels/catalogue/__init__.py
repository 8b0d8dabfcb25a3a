"""The kernels that exist, as records. Nothing here imports torch."""

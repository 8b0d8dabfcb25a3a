"""The references with which kernels are compared: ops in float64 without cancellation."""

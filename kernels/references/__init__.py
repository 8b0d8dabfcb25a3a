"""Ops in float64 without cancellation, to measure kernels against."""

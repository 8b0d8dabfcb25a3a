"""Swaps: other kernels for some ops of a running script, in each mode, and the proof that they ran."""

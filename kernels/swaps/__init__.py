"""Swaps: other kernels for some ops of a running script, in any mode, and the proof that they ran."""

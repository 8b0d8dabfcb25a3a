"""Swaps: other kernels for some ops of a running script, in eager, compile and lazy mode, and the proof that
they ran."""

"""Lazy tensors: torch's own core with the TorchScript backend."""

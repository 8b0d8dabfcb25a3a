"""Tapes and tensors as files."""

"""Observers of values: digests, sketches, whole tensors, and the writer of a step."""

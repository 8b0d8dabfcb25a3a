"""The protocols between a training process and its observers: the moments that are reported, and their order."""

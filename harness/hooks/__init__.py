"""The protocols between a training's process and its observers: the moments that are reported, and their order."""

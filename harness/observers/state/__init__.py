"""Observers of a training's state: batches, optimizers, generators, and steps that start from another run's state."""

"""Observers of a run's state: batches, optimizers, generators, and steps that start from another run's state."""

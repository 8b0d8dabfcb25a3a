"""The experiments of an investigation within a training run: states, outcomes, tapes, and resynced steps."""

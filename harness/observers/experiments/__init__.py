"""The experiments of an investigation within a training: states, outcomes, tapes, and resynced steps."""

"""Summaries of the work of a run's backend."""

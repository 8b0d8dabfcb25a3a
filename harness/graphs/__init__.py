"""Graphs of a run: captured in its process, kept as one neutral record, exported, compared and shown."""

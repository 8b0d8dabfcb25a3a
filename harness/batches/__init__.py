"""Batches of experiments: which tasks a file describes, what their folders hold, and the table of their results."""

"""Summaries of a backend's work."""

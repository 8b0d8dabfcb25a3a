"""Differences between the setups of two runs, which come before any arithmetic."""

"""The comparison of two runs' graphs."""

"""Distances between two runs: between losses, parameters and single numbers."""

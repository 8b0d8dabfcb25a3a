"""Graphs in formats that other programs read."""

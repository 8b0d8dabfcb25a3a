"""Descriptions of culprits and of repetitions in sentences."""

"""Packs an investigation into one archive, and unpacks it."""

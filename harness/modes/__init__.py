"""Modes: the ways to execute a reproducer, and the grammar that names them."""

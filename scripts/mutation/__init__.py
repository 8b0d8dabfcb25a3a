"""Mutants of the sources: drawn, found again in a later tree, and run against the tests that execute them."""

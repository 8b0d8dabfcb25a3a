"""One training step as a tape: the calls of its ops, executed again exactly, with random rounding, or in double."""

"""One training step as a tape: the calls of its ops, replayed unchanged, with random rounding or in double."""

"""Whether a replayed snapshot gives again what it gave."""

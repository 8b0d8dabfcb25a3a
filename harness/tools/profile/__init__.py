"""Where the time of traced steps went."""

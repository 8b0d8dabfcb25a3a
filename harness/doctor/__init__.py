"""Which modes work here: each is tried on a training of two steps."""

"""Scripts that name a device of their own, adopted to the device of the mode."""

"""Support analysis: which operators of a training a mode's backend can do, asked of the backend itself."""

"""The recording of a tape while a step is executed."""

"""The guest in the training process: it prepares the process, calls the observers, and records how the script ends."""

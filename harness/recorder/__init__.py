"""The guest in the training process: it sets the process up, leads the observers, and records how the script ends."""

"""The guest in the training process: sets it up, calls the observers, records how the script ends."""

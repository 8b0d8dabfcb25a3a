"""The guest in the training process: it sets the process up, leads the observers, and writes down how the
script ended."""

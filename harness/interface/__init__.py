"""The Python interface: the command line's power for notebooks, custom loops and programs."""

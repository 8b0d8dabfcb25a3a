"""Modules of which a part runs on a mode's backend, and the rest on the CPU."""

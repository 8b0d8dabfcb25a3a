"""The command line. Each command is one file, imported when it is asked for."""

from .program import main

__all__ = ["main"]

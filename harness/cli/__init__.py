"""The command line. Each command is one file, imported when the command is called."""

from .program import main

__all__ = ["main"]

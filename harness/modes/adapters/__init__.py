"""The adapters of the modes that numdrift has: what the bring-up tools ask each backend."""

"""The Python interface: the names of `import numdrift`, above the same parts as the command line."""

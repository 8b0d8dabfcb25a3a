"""The Python interface: the names of `import numdrift`, built on the same parts as the command line."""

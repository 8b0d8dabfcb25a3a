"""The Python interface: what `import numdrift` gives, above the same parts as the command line."""

"""Plain records of everything that passes between processes or is written to disk, and their codec.

Standard library only.
"""

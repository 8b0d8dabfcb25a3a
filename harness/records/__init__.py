"""Plain records of all that passes between processes or is written to disk, and their codec.

Standard library only.
"""

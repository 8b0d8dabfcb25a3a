"""Engines: they execute tasks, which are commands with a folder each, on this machine, by Slurm or on a Ray cluster."""

"""Snapshots: single executions of a backend, with their inputs, their outputs and their graph, each in one file."""

"""Executions as files: what a snapshot holds, how it is written, and the snapshots of eager execution."""

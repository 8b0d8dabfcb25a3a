"""Snapshots of executions: their contents, their files, and those of eager mode."""

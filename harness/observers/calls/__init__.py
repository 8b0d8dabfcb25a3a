"""Observers of calls: ops, their places, and the tape of a step."""

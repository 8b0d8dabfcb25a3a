"""Observers of calls: the ops of a step, the lines that draw random numbers, and compilations."""

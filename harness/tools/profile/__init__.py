"""The time of traced steps, by phase, op and site."""

"""The part of the metrics that is in the script's process: torch and the standard library only."""

"""The part of the profiler that runs in the script's process: torch and the standard library only."""

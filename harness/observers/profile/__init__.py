"""The profiler in the script's process: traces of chosen steps."""

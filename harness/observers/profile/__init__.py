"""The profiler in the script's process: it traces chosen steps."""

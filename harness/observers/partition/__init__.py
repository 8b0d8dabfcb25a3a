"""The partitioner in the script's process: supported operators run on a backend, the rest on the CPU."""

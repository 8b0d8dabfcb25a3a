"""The partitioner in the script's process: supported operators on a backend, the rest on the CPU."""

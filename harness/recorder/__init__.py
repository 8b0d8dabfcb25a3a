"""The recorder: a guest in the script's process. Imports torch and the standard library, nothing else."""

"""The lab: measures kernels against references, on chosen inputs or on all inputs."""

"""The service of a worker: it executes calls by the kernels of its mode on request."""

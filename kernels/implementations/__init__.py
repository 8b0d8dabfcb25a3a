"""The kernels: torch functions, some of them backed by C code."""

"""Private names of torch's profilers, and the work of compilers and devices."""

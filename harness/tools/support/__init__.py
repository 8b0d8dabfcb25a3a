"""Reports of the operators that a backend supports."""

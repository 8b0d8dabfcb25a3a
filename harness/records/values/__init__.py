"""Records of recorded values: digests, sketches, layouts and calls."""

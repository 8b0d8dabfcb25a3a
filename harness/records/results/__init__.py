"""Records of results: experiments, culprits, findings and their codecs."""

"""The script of a run that calls an op of torch with samples of PyTorch's test suite: it does nothing itself."""

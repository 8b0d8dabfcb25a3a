"""numdrift: numerical divergence investigation for PyTorch."""

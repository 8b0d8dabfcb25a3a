"""The ways to execute a training, a folder each: mode, adapter, graph capture, record of its work."""

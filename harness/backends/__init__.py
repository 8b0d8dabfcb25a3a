"""The ways to execute a training, a folder each: its mode, its adapter, its graph capture, the record of its work."""

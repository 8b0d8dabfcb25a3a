"""The ways to execute a training script, each in a folder with its mode, adapter, graph capture and record of work."""

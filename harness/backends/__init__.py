"""The ways to execute a training, a room each: its mode, its adapter, its graph capture, what it says of its work."""

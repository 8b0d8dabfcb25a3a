"""numdrift's view of a training script: its adoption, its losses, its steps, and its tensors with their names."""

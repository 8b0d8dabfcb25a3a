"""What a training script is to numdrift: how it is adopted, its losses, its steps, its tensors and their
names."""

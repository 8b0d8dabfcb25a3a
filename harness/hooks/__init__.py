"""The protocols between a training process and its observers: what is reported of a training, and when."""
